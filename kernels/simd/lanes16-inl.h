// Sixteen float lanes on every target: one zmm or two ymm. The contract of sums (quant/numeric/math.h) is written for
// sixteen lanes, so kernels that sum are written with this type. Per target: include after hwy/foreach_target.h.
#if defined(OCTAVO_KERNELS_SIMD_LANES16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_LANES16_INL_H_
#undef OCTAVO_KERNELS_SIMD_LANES16_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_LANES16_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using F16D = hwy::HWY_NAMESPACE::CappedTag<float, 16>;
using F16V = hwy::HWY_NAMESPACE::Vec<F16D>;
inline constexpr size_t kF16Lanes = hwy::HWY_NAMESPACE::MaxLanes(F16D());  // of one vector: 8 or 16

#if HWY_TARGET == HWY_AVX2
struct F16 {
  F16V a, b;
};
#define OCTAVO_F16(expr_a, expr_b) \
  F16 { expr_a, expr_b }
#else
struct F16 {
  F16V a;
};
#define OCTAVO_F16(expr_a, expr_b) \
  F16 { expr_a }
#endif

// Applies f to each vector.
template <class F>
HWY_INLINE F16 Map(F f, F16 x) {
  return OCTAVO_F16(f(x.a), f(x.b));
}
template <class F>
HWY_INLINE F16 Map(F f, F16 x, F16 y) {
  return OCTAVO_F16(f(x.a, y.a), f(x.b, y.b));
}

HWY_INLINE F16 Set16(float v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Set(F16D(), v), hn::Set(F16D(), v));
}
HWY_INLINE F16 Load16(const float* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::LoadU(F16D(), p), hn::LoadU(F16D(), p + 8));
}
HWY_INLINE void Store16(F16 x, float* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  hn::StoreU(x.a, F16D(), p);
#if HWY_TARGET == HWY_AVX2
  hn::StoreU(x.b, F16D(), p + 8);
#endif
}
HWY_INLINE size_t HighPart(size_t n) { return n > 8 ? n - 8 : 0; }
// The first n <= 16 lanes, the others `fill`. Touches no memory beyond them.
HWY_INLINE F16 LoadN16(const float* p, size_t n, float fill = 0.0f) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16V no = hn::Set(F16D(), fill);
  return OCTAVO_F16(hn::LoadNOr(no, F16D(), p, HWY_MIN(n, kF16Lanes)), hn::LoadNOr(no, F16D(), p + 8, HighPart(n)));
}
HWY_INLINE void StoreN16(F16 x, float* p, size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  hn::StoreN(x.a, F16D(), p, HWY_MIN(n, kF16Lanes));
#if HWY_TARGET == HWY_AVX2
  if (n > 8) hn::StoreN(x.b, F16D(), p + 8, n - 8);
#endif
}
// x with 0 beyond the first n lanes.
HWY_INLINE F16 FirstN16(F16 x, size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::IfThenElseZero(hn::FirstN(F16D(), HWY_MIN(n, kF16Lanes)), x.a),
                    hn::IfThenElseZero(hn::FirstN(F16D(), HighPart(n)), x.b));
}

HWY_INLINE F16 Add16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Add(x.a, y.a), hn::Add(x.b, y.b));
}
HWY_INLINE F16 Sub16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Sub(x.a, y.a), hn::Sub(x.b, y.b));
}
HWY_INLINE F16 Mul16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Mul(x.a, y.a), hn::Mul(x.b, y.b));
}
HWY_INLINE F16 Div16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Div(x.a, y.a), hn::Div(x.b, y.b));
}
HWY_INLINE F16 Max16(F16 x, F16 y) {  // y where either is NaN
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Max(x.a, y.a), hn::Max(x.b, y.b));
}
HWY_INLINE F16 MulAdd16(F16 x, F16 y, F16 z) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::MulAdd(x.a, y.a, z.a), hn::MulAdd(x.b, y.b, z.b));
}

// l[i] op l[i + 8], then 4, 2, 1.
template <class Op>
HWY_INLINE float Fold16(F16 x, Op op) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full256<float> d8;
  const hn::Full128<float> d4;
#if HWY_TARGET == HWY_AVX2
  const auto eight = op(x.a, x.b);
#else
  const auto eight = op(hn::LowerHalf(d8, x.a), hn::UpperHalf(d8, x.a));
#endif
  const auto four = op(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
  const auto two = op(four, hn::Shuffle1032(four));
  return hn::GetLane(op(two, hn::Shuffle2301(two)));
}
struct AddOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hwy::HWY_NAMESPACE::Add(a, b);
  }
};
struct MaxOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hwy::HWY_NAMESPACE::Max(a, b);
  }
};
HWY_INLINE float SumLanes(F16 x) { return Fold16(x, AddOp()); }
HWY_INLINE float MaxLane(F16 x) { return Fold16(x, MaxOp()); }

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
