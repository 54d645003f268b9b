// The epilogue without activation in fixed point: one FMA from a sum to its code. Per target.
//
// The contract is RN_int(RN(RN(RN(f * scale) + bias) / y_scale)) + zero point, f = float(sum). Here
//   t = RN(f * factor + offset),   factor = RN(scale / y_scale),   offset = RN(bias / y_scale + 256.5 + zero point + window / 2),
// so that a code between 0 and 255 is t in [256, 512): there the bits of t are a fixed-point number with 15 digits behind
// the point, and the code is floor(t) - 256. With T = (f * scale + bias) / y_scale, B = max |bias| / y_scale, A the largest
// |T| that does not saturate and u = 2^-24, the contract is off T by at most u (3 A + B): its first rounding is relative to
// f * scale, which is T less the bias. t is off by u (A + B) for the factor, u (513 + B) for the offset, and 256 u for the
// FMA. So where the digits are not below the window, twice the sum of all that, floor(t) is the contract's integer, and no
// tie is near; else the row is computed as the contract says. T beyond A gives a code beyond 0 or 255 in both.
// 6 operations a vector instead of 9.75; at a window of 8 digits of 32768 one row of 64 codes in 64 is computed twice.
#if defined(OCTAVO_KERNELS_GEMM_FIXED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_FIXED_INL_H_
#undef OCTAVO_KERNELS_GEMM_FIXED_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_FIXED_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/gemm/finish-inl.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using FixedD = hwy::HWY_NAMESPACE::ScalableTag<int32_t>;
using FixedV = hwy::HWY_NAMESPACE::Vec<FixedD>;
using FixedBytes = hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::Repartition<uint8_t, FixedD>>;

inline constexpr int kFixedLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(FixedD()));

// Of one block of 64 columns.
struct FixedColumns {
  alignas(64) float factor[64];
  alignas(64) float offset[64];
  int32_t digits = 0;  // those that are all 0 where a code is in doubt; 0: the form cannot be used
  uint8_t flip = 0;    // of the top bit of s8 codes
  uint8_t least = 0;   // code, as u8: the zero point where there is a ReLU

  bool IsPlain() const { return flip == 0 && least == 0; }
};

// scale, bias: 64 floats each, aligned. Not usable: a value that is not finite, a bias beyond about 4900 steps of y.
inline void FillFixed(const float* scale, const float* bias, float y_scale, int32_t zero_point, bool is_signed,
                      bool relu, FixedColumns* c) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto reciprocal = hn::Set(d, 1.0 / static_cast<double>(y_scale));
  auto largest = hn::Zero(d), finite = hn::Zero(d);  // 0 times what is not finite is NaN
  for (size_t i = 0; i < 64; i += hn::Lanes(d)) {
    const auto factor = hn::DemoteTo(df, hn::Mul(hn::PromoteTo(d, hn::Load(df, scale + i)), reciprocal));
    const auto move = hn::Mul(hn::PromoteTo(d, hn::Load(df, bias + i)), reciprocal);
    hn::Store(factor, df, c->factor + i);
    largest = hn::Max(largest, hn::Abs(move));
    finite = hn::MulAdd(hn::Add(hn::PromoteTo(d, factor), move), hn::Zero(d), finite);
  }
  const int32_t zero = zero_point + (is_signed ? 128 : 0);
  const double most = std::max(zero, 255 - zero) + 1, b = hn::ReduceMax(d, largest);
  const double window = 2 * (4 * most + 3 * b + 769) * 0x1p-9;  // digits of 2^-15 are 2^9 u
  c->digits = 0;
  if (!(hn::ReduceSum(d, finite) == 0 && window < 63.9)) return;
  int32_t below = 8;
  while (below < window * 1.001) below *= 2;
  const auto add = hn::Set(d, 256.5 + zero + below * 0x1p-16);
  for (size_t i = 0; i < 64; i += hn::Lanes(d)) {
    const auto move = hn::Mul(hn::PromoteTo(d, hn::Load(df, bias + i)), reciprocal);
    hn::Store(hn::DemoteTo(df, hn::Add(move, add)), df, c->offset + i);
  }
  c->digits = 0x7FFF & ~(below - 1);
  c->flip = is_signed ? 0x80 : 0;
  c->least = static_cast<uint8_t>(relu ? zero : 0);
}

// Four vectors of columns: what a row of sums needs to become bytes. Offsets are read where they are used: with eight
// vectors, GCC 14.2 keeps them on the stack beside the sums of a tile.
struct FixedFour {
  EpilogueV f0, f1, f2, f3;
  const float* offset;
  FixedV digits;
  FixedBytes flip, least;

  HWY_INLINE FixedFour(const FixedColumns& c, int column) : offset(c.offset + column) {
    namespace hn = hwy::HWY_NAMESPACE;
    const float* factor = c.factor + column;
    f0 = hn::Load(EpilogueD(), factor);
    f1 = hn::Load(EpilogueD(), factor + kFixedLanes);
    f2 = hn::Load(EpilogueD(), factor + 2 * kFixedLanes);
    f3 = hn::Load(EpilogueD(), factor + 3 * kFixedLanes);
    digits = hn::Set(FixedD(), c.digits);
    flip = hn::Set(hn::DFromV<FixedBytes>(), c.flip);
    least = hn::Set(hn::DFromV<FixedBytes>(), c.least);
  }

  // bits >> 15 of [256, 512) is 0x8700 + the code; negative numbers saturate to 0, larger ones stay above it.
  static HWY_INLINE auto Words(FixedV a, FixedV b) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Repartition<uint16_t, FixedD> d16;
    const auto both = hn::ReorderDemote2To(d16, hn::ShiftRight<15>(a), hn::ShiftRight<15>(b));
    return hn::BitCast(hn::RebindToSigned<decltype(d16)>(), hn::SaturatedSub(both, hn::Set(d16, uint16_t{0x8700})));
  }

  // Bytes in order. kPlain: u8 without ReLU. *certain: no code is in doubt.
  template <bool kPlain>
  HWY_INLINE FixedBytes Of(FixedV s0, FixedV s1, FixedV s2, FixedV s3, bool* certain) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const auto at = [&](FixedV sum, EpilogueV factor, int i) HWY_ATTR {
      const EpilogueV add = hn::Load(EpilogueD(), offset + i * kFixedLanes);
      return hn::BitCast(FixedD(), hn::MulAdd(hn::ConvertTo(EpilogueD(), sum), factor, add));
    };
    const FixedV t0 = at(s0, f0, 0), t1 = at(s1, f1, 1), t2 = at(s2, f2, 2), t3 = at(s3, f3, 3);
    *certain = AreCertain(t0, t1, t2, t3);
    const auto bytes = BytesInOrder(hn::ReorderDemote2To(hn::DFromV<FixedBytes>(), Words(t0, t1), Words(t2, t3)));
    if constexpr (kPlain) return bytes;
    return hn::Xor(hn::Max(bytes, least), flip);
  }

 private:
  HWY_INLINE bool AreCertain(FixedV t0, FixedV t1, FixedV t2, FixedV t3) const {
#if HWY_TARGET <= HWY_AVX3
    __mmask16 certain = _mm512_test_epi32_mask(t0.raw, digits.raw);
    certain = _mm512_mask_test_epi32_mask(certain, t1.raw, digits.raw);
    certain = _mm512_mask_test_epi32_mask(certain, t2.raw, digits.raw);
    certain = _mm512_mask_test_epi32_mask(certain, t3.raw, digits.raw);
    return _kortestc_mask16_u8(certain, certain) != 0;
#else
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<FixedD> du;
    const auto at = [&](FixedV t) HWY_ATTR { return hn::BitCast(du, hn::And(t, digits)); };
    const auto least_digits = hn::Min(hn::Min(at(t0), at(t1)), hn::Min(at(t2), at(t3)));
    return hn::AllFalse(du, hn::Eq(least_digits, hn::Zero(du)));
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
