// Memory for packed operands: 64-byte aligned (one cache line, one zmm), owned, movable, zero-filled.
// Where there is not so much, std::bad_alloc.
#ifndef OCTAVO_KERNELS_SIMD_ALIGNED_H_
#define OCTAVO_KERNELS_SIMD_ALIGNED_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

namespace octavo::kernels {

inline constexpr size_t kAlignment = 64;

template <typename T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t count) : size_(count) {
    if (count > std::numeric_limits<size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, bytes == 0 ? kAlignment : bytes);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    data_.reset(static_cast<T*>(memory));
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_ALIGNED_H_
