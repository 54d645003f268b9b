#include "octavo/kernels/simd/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>

#include "octavo/kernels/simd/aligned.h"

namespace octavo::kernels::internal {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{32} << 20;
// Smaller arrays share no page worth the name; malloc packs them well. A sanitizer sees the ends of malloc's blocks alone.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kSmallest = std::numeric_limits<size_t>::max();
#else
constexpr size_t kSmallest = 65536;
#endif

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Mapped memory from which arrays are cut one after the other. Pages that none has touched are not there.
class Region {
 public:
  explicit Region(size_t bytes) : size_(bytes) {
    mapped_ = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    base_ = static_cast<std::byte*>(mapped_) + (RoundUp(address, kHugePage) - address);
    madvise(base_, size_, MADV_HUGEPAGE);  // a wish: refused, the pages are small ones
  }
  ~Region() { munmap(mapped_, size_ + kHugePage); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  size_t left() const { return size_ - used_; }
  std::byte* Cut(size_t bytes) {
    std::byte* cut = base_ + used_;
    used_ += bytes;
    return cut;
  }

 private:
  void* mapped_;
  std::byte* base_;
  size_t size_, used_ = 0;
};

std::shared_ptr<std::byte> FromHeap(size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, std::max(bytes, kAlignment));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return {static_cast<std::byte*>(memory), &std::free};
}

}  // namespace

std::shared_ptr<std::byte> WeightMemory(size_t count, size_t size) {
  static std::mutex mutex;
  static std::weak_ptr<Region> open;  // the region with the most room; its arrays alone keep it
  if (count > std::numeric_limits<size_t>::max() / 2 / size) throw std::bad_alloc();
  const size_t bytes = RoundUp(count * size, kAlignment);
  if (bytes < kSmallest) return FromHeap(bytes);
  const std::scoped_lock lock(mutex);
  std::shared_ptr<Region> region = open.lock();
  if (region == nullptr || region->left() < bytes) {
    auto fresh = std::make_shared<Region>(RoundUp(std::max(bytes, kRegion), kHugePage));
    if (region == nullptr || fresh->left() - bytes > region->left()) open = fresh;
    region = std::move(fresh);
  }
  return {region, region->Cut(bytes)};
}

}  // namespace octavo::kernels::internal
