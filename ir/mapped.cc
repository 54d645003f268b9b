#include "octavo/ir/mapped.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "octavo/ir/names.h"

namespace octavo::ir {

MappedFile::MappedFile(void* data, size_t size, std::string label) {
  data_ = static_cast<std::byte*>(data);
  size_ = size;
  file_ = std::move(label);
}

MappedFile::~MappedFile() {
  if (size_ != 0) munmap(data_, size_);
}

Result<std::shared_ptr<const Buffer>> MapFile(const std::filesystem::path& path, std::string label) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block the program
  if (fd < 0) return Fail("{} cannot be opened: {}", Quoted(path.string()), std::strerror(errno));
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return Fail("{} is not a regular file", Quoted(path.string()));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size != 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return Fail("{} cannot be mapped: {}", Quoted(path.string()), std::strerror(error));
    }
  }
  close(fd);
  return std::make_shared<MappedFile>(data, size, std::move(label));
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
