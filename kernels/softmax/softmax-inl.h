// quant::SoftmaxRow in vectors, bit for bit; also used by the float attention. Per target: include after
// hwy/foreach_target.h.
#if defined(OCTAVO_KERNELS_SOFTMAX_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SOFTMAX_SOFTMAX_INL_H_
#undef OCTAVO_KERNELS_SOFTMAX_SOFTMAX_INL_H_
#else
#define OCTAVO_KERNELS_SOFTMAX_SOFTMAX_INL_H_
#endif

#include <cstddef>
#include <limits>

#include "hwy/highway.h"
#include "octavo/kernels/simd/exp-inl.h"
#include "octavo/kernels/simd/lanes16-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE F16 Exp16(F16 x) { return OCTAVO_F16(ExpNonPositive(F16D(), x.a), ExpNonPositive(F16D(), x.b)); }

// A NaN may get lost in the maximum, but not in the sum, and then it reaches every element: as in the truth.
HWY_INLINE void SoftmaxRow(const float* x, size_t n, float* y) {
  const size_t whole = n / 16 * 16;
  const size_t rest = n - whole;
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  F16 max = Set16(kLow);
  for (size_t i = 0; i < whole; i += 16) max = Max16(Load16(x + i), max);
  if (rest != 0) max = Max16(LoadN16(x + whole, rest, kLow), max);
  const F16 m = Set16(MaxLane(max));
  F16 sum = Set16(0.0f);
  for (size_t i = 0; i < whole; i += 16) {
    const F16 e = Exp16(Sub16(Load16(x + i), m));
    Store16(e, y + i);
    sum = Add16(sum, e);
  }
  if (rest != 0) {
    const F16 e = Exp16(Sub16(LoadN16(x + whole, rest, kLow), m));  // exactly 0 beyond the row
    StoreN16(e, y + whole, rest);
    sum = Add16(sum, e);
  }
  const F16 s = Set16(SumLanes(sum));
  for (size_t i = 0; i < whole; i += 16) Store16(Div16(Load16(y + i), s), y + i);
  if (rest != 0) StoreN16(Div16(LoadN16(y + whole, rest), s), y + whole, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
