// The sums of both products on their way to y, per target.
#if defined(OCTAVO_KERNELS_BLOCKED_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_BLOCKED_STORE_INL_H_
#undef OCTAVO_KERNELS_BLOCKED_STORE_INL_H_
#else
#define OCTAVO_KERNELS_BLOCKED_STORE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// y = acc [rows][64] + bias; `args` has y, y_stride and bias.
template <class Args>
void StoreRows(const Args& args, const float* acc, int64_t first, int64_t rows, int64_t column, int columns) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int kFloats = static_cast<int>(hn::MaxLanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    float* out = args.y + (first + r) * args.y_stride + column;
    for (int c = 0; c < columns; c += kFloats) {
      const auto left = static_cast<size_t>(columns - c);
      auto v = hn::Load(d, acc + r * 64 + c);
      if (args.bias != nullptr) v = hn::Add(v, hn::LoadN(d, args.bias + column + c, left));
      hn::StoreN(v, d, out + c, left);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // OCTAVO_KERNELS_BLOCKED_STORE_INL_H_
