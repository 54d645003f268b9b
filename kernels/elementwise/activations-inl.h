// Erf, Tanh, Sigmoid and the activations of quant/numeric/math.h in vectors, bit for bit. Per target: include after
// hwy/foreach_target.h. d: a float tag of 8 (AVX2, AVX-512) or 16 lanes.
#if defined(OCTAVO_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_
#undef OCTAVO_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_
#else
#define OCTAVO_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_
#endif

#include "hwy/highway.h"
#include "octavo/kernels/simd/exp-inl.h"
#include "octavo/quant/numeric/math_constants.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// minps and maxps give the second operand for a NaN, so NaN passes.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ClampAbs(D d, V x, float limit) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Min(hn::Set(d, limit), hn::Max(hn::Set(d, -limit), x));
}

template <int kN, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Horner(D d, V u, const float (&coefficients)[kN]) {
  namespace hn = hwy::HWY_NAMESPACE;
  V p = hn::Set(d, coefficients[kN - 1]);
  for (int i = kN - 2; i >= 0; --i) p = hn::MulAdd(p, u, hn::Set(d, coefficients[i]));
  return p;
}

template <int kP, int kQ, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V OddRational(D d, V x, float limit, const float (&num)[kP], const float (&den)[kQ]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V c = ClampAbs(d, x, limit);
  const V u = hn::Mul(c, c);
  return ClampAbs(d, hn::Div(hn::Mul(c, Horner(d, u, num)), Horner(d, u, den)), 1.0f);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  namespace c = quant::constants;
  return OddRational(d, x, c::kErfLimit, c::kErfP, c::kErfQ);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  namespace c = quant::constants;
  return OddRational(d, x, c::kTanhLimit, c::kTanhP, c::kTanhQ);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  return hwy::HWY_NAMESPACE::Mul(x, Sigmoid(d, x));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V QuickGelu(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Mul(x, Sigmoid(d, hn::Mul(x, hn::Set(d, quant::constants::kQuickGelu))));
}

// The truth divides x by sqrt(2). RN(x * r), corrected once by its exact remainder, is that quotient (Markstein)
// wherever the remainder is normal; below, erf + 1 is 1 whatever the last bit. Beyond 8, erf is 1: the clamp keeps inf
// from inf - inf.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr float kReciprocal = 1.0f / quant::constants::kSqrt2;
  const V reciprocal = hn::Set(d, kReciprocal);
  const V c = ClampAbs(d, x, 8.0f);
  V q = hn::Mul(c, reciprocal);
  q = hn::MulAdd(hn::NegMulAdd(q, hn::Set(d, quant::constants::kSqrt2), c), reciprocal, q);
  return hn::Mul(hn::Mul(x, hn::Add(Erf(d, q), hn::Set(d, 1.0f))), hn::Set(d, 0.5f));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V GeluTanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V cube = hn::Mul(hn::Mul(hn::Mul(x, x), x), hn::Set(d, quant::constants::kGeluCubic));
  const V t = Tanh(d, hn::Mul(hn::Add(x, cube), hn::Set(d, quant::constants::kGeluScale)));
  return hn::Mul(hn::Mul(x, hn::Add(t, hn::Set(d, 1.0f))), hn::Set(d, 0.5f));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Relu(D d, V x) {
  return hwy::HWY_NAMESPACE::Max(hwy::HWY_NAMESPACE::Zero(d), x);  // x < 0 ? 0 : x
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
