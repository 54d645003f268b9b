// Memory for packed weights: arrays follow each other on pages of 2 MB, where the system gives such pages. Weights are read once a
// call from wherever they lie; on pages of 4 KB, each mapped at a time, Zen 4 reads 19 to 21 GB/s of them, so 30 (DESIGN.md).
#ifndef OCTAVO_KERNELS_SIMD_WEIGHTS_H_
#define OCTAVO_KERNELS_SIMD_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

namespace octavo::kernels {

namespace internal {
// count * size zeros, aligned to 64. The pointer holds the mapping, which arrays share; it goes back with the last of them.
// Throws std::bad_alloc.
std::shared_ptr<std::byte> WeightMemory(size_t count, size_t size);
}  // namespace internal

// The bytes of an array and what keeps them: so packed weights go into a file and come out of one.
struct WeightBytes {
  std::shared_ptr<const std::byte> data;
  size_t size = 0;
};

// Zero-filled, 64-byte aligned, owned, movable; any thread may make one.
template <typename T>
class WeightArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  WeightArray() = default;
  explicit WeightArray(size_t count) : memory_(internal::WeightMemory(count, sizeof(T))), size_(count) {}
  // Of `count` elements that lie in another's memory, to be read alone; none where the bytes are not so many, or not aligned.
  static std::optional<WeightArray> View(const WeightBytes& of, size_t count) {
    if (of.size != count * sizeof(T) || reinterpret_cast<uintptr_t>(of.data.get()) % 64 != 0) return {};
    WeightArray view;
    view.memory_ = std::const_pointer_cast<std::byte>(of.data);
    view.size_ = count;
    return view;
  }
  WeightArray(WeightArray&&) noexcept = default;
  WeightArray& operator=(WeightArray&&) noexcept = default;
  T* data() { return reinterpret_cast<T*>(memory_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.get()); }
  size_t size() const { return size_; }
  WeightBytes bytes() const { return {memory_, size_ * sizeof(T)}; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t size_ = 0;
};

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_WEIGHTS_H_
