#include "octavo/ir/mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace octavo::ir {

MappedFile::MappedFile(void* data, size_t size, std::string label) {
  data_ = static_cast<std::byte*>(data);
  size_ = size;
  file_ = std::move(label);
}

MappedFile::~MappedFile() {
  if (size_ != 0) munmap(data_, size_);
}

void ForgetPages(const Tensor& t) {
  constexpr size_t kWorth = 1 << 16;  // a call costs as much as some pages
  if (t.byte_size() < kWorth || dynamic_cast<const MappedFile*>(t.buffer().get()) == nullptr) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(t.data()), end = begin + t.byte_size();
  // Whole pages: those at the ends may have another tensor, too.
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): of the mapping
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace octavo::ir
