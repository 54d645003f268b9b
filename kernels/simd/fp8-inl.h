// fp8 codes to floats and back, bit for bit as quant/numeric/code8.h. Per target: include after hwy/foreach_target.h.
//
// To floats through binary16, whose conversion takes subnormals as they are: E5M2 is its upper byte; E4M3FN, shifted by
// one, is the value times 2^-8, except that its NaN reads as 1.875.
#if defined(OCTAVO_KERNELS_SIMD_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_FP8_INL_H_
#undef OCTAVO_KERNELS_SIMD_FP8_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_FP8_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/simd/fp8.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using Fp8D = hwy::HWY_NAMESPACE::ScalableTag<float>;
using Fp8V = hwy::HWY_NAMESPACE::Vec<Fp8D>;
using Fp8Bytes = hwy::HWY_NAMESPACE::Rebind<uint8_t, Fp8D>;

// Codes in the upper bytes of 16-bit lanes (the lower ones do not matter) to binary16: the values, E4M3FN times 2^-8.
template <bool kE4M3, class V16>
HWY_INLINE V16 Fp8ToHalf(V16 upper) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V16> d16;
  if constexpr (!kE4M3) return hn::And(upper, hn::Set(d16, 0xFF00));
  const hn::RebindToSigned<decltype(d16)> ds16;
  return hn::And(hn::BitCast(d16, hn::ShiftRight<1>(hn::BitCast(ds16, upper))), hn::Set(d16, 0xBF80));
}

template <class D, class V16>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> HalfToFloat(D d, V16 half) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
}

// One vector of codes, times `factor`, which has 2^8 in it for E4M3FN.
template <bool kE4M3, class D, class V8, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fp8ToFloat(D d, V8 codes, V factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> d16;
  V v = HalfToFloat(d, Fp8ToHalf<kE4M3>(hn::ShiftLeft<8>(hn::PromoteTo(d16, codes))));
  if constexpr (kE4M3) v = hn::IfThenElse(hn::Eq(hn::Abs(v), hn::Set(d, 1.875f)), hn::NaN(d), v);
  return hn::Mul(v, factor);
}

// y[i] = value of x[i] * scale.
template <bool kE4M3>
void DecodeFp8(const uint8_t* x, size_t n, float scale, float* y) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Fp8D d;
  const Fp8Bytes d8;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const Fp8V unit = hn::Set(d, kE4M3 ? 256.0f : 1.0f), factor = hn::Set(d, scale);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Mul(Fp8ToFloat<kE4M3>(d, hn::LoadU(d8, x + i), unit), factor), d, y + i);
  }
  if (i < n) hn::StoreN(hn::Mul(Fp8ToFloat<kE4M3>(d, hn::LoadN(d8, x + i, n - i), unit), factor), d, y + i, n - i);
}

// |x| / |scale|, rounded, up to the largest value or one that rounds to it: by the division, or by a product with the reciprocal and its
// exact remainder (requant-inl.h). `sign` gets what has the sign of the quotient; kPositive: x is not negative.
template <bool kPositive>
HWY_INLINE Fp8V Fp8Quotient(const Fp8Requant& r, Fp8V x, Fp8V* sign) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Fp8D d;
  const Fp8V scale = hn::Set(d, r.scale);
  if (r.divide) {
    *sign = hn::Div(x, scale);
    return hn::Min(hn::Set(d, r.largest), hn::Abs(*sign));
  }
  *sign = x;
  const Fp8V reciprocal = hn::Set(d, r.reciprocal);
  const Fp8V c = hn::Min(hn::Set(d, r.limit), kPositive ? x : hn::Abs(x));  // minps gives its second operand for a NaN
  const Fp8V q = hn::Mul(c, reciprocal);
  return hn::MulAdd(hn::NegMulAdd(q, scale, c), reciprocal, q);
}

// An addition that rounds to the distance of the codes: to a power of two whose ulp is that distance at a, or among the subnormal
// values. The sum has a / distance in its low bits, and the code is that plus the exponent (a carry goes into it). `magic` has in it
// what the exponent has too much; it is even, so that ties go to even codes.
struct Fp8Sum {
  hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::RebindToSigned<Fp8D>> exponent;
  Fp8V magic, sum;
};
HWY_INLINE Fp8Sum Fp8RoundingSum(const Fp8Requant& r, Fp8V a) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Fp8D d;
  const hn::RebindToSigned<Fp8D> di;
  const auto exponent = hn::Max(hn::And(hn::BitCast(di, a), hn::Set(di, 0x7F800000)), hn::Set(di, r.least_exponent));
  const Fp8V magic = hn::BitCast(d, hn::Add(exponent, hn::Set(di, r.magic)));
  return {exponent, magic, hn::Add(a, magic)};
}

// The value of the code of x / r.scale, for x >= 0 or NaN.
HWY_INLINE Fp8V Fp8Rounded(const Fp8Requant& r, Fp8V x) {
  Fp8V sign;
  const Fp8Sum s = Fp8RoundingSum(r, Fp8Quotient<true>(r, x, &sign));
  return hwy::HWY_NAMESPACE::Sub(s.sum, s.magic);  // of a NaN it is one
}

// The codes of x / r.scale.
HWY_INLINE auto Fp8Codes(const Fp8Requant& r, Fp8V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Fp8D d;
  const hn::RebindToSigned<Fp8D> di;
  const hn::RebindToUnsigned<Fp8D> du;
  Fp8V sign;
  const Fp8V a = Fp8Quotient<false>(r, x, &sign);
  const Fp8Sum s = Fp8RoundingSum(r, a);
  const auto magnitude = hn::Add(hn::BitCast(di, s.sum), hn::Shr(s.exponent, hn::Set(di, r.shift)));
  const auto code =
      hn::BitwiseIfThenElse(hn::Set(di, 0x80), hn::BitCast(di, hn::ShiftRight<24>(hn::BitCast(du, sign))), magnitude);
  const auto all = hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(a)), hn::Set(di, r.nan), code);
  return hn::TruncateTo(Fp8Bytes(), hn::BitCast(du, all));
}

// y[i] = code of x[i] / r.scale.
inline void EncodeFp8(Fp8Requant r, const float* x, size_t n,
                      uint8_t* y) {  // by value: no store of a byte can change it
  namespace hn = hwy::HWY_NAMESPACE;
  const Fp8D d;
  const Fp8Bytes d8;
  constexpr size_t kLanes = hn::MaxLanes(d);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(Fp8Codes(r, hn::LoadU(d, x + i)), d8, y + i);
  if (i < n) hn::StoreN(Fp8Codes(r, hn::LoadN(d, x + i, n - i)), d8, y + i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
