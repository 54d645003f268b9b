// quant::Exp in vectors, bit for bit. Per target: include after hwy/foreach_target.h.
#if defined(OCTAVO_KERNELS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_EXP_INL_H_
#undef OCTAVO_KERNELS_SIMD_EXP_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "octavo/quant/numeric/math_constants.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// kExpTable twice, since vpermd zmm takes four bits of the index.
alignas(64) inline constexpr uint32_t kExpTable16[16] = {
    quant::constants::kExpTable[0], quant::constants::kExpTable[1], quant::constants::kExpTable[2],
    quant::constants::kExpTable[3], quant::constants::kExpTable[4], quant::constants::kExpTable[5],
    quant::constants::kExpTable[6], quant::constants::kExpTable[7], quant::constants::kExpTable[0],
    quant::constants::kExpTable[1], quant::constants::kExpTable[2], quant::constants::kExpTable[3],
    quant::constants::kExpTable[4], quant::constants::kExpTable[5], quant::constants::kExpTable[6],
    quant::constants::kExpTable[7]};

// Highway's TableLookupLanes asserts indices below twice the lanes in debug builds; the instructions only look at the
// low bits.
HWY_INLINE hwy::HWY_NAMESPACE::Vec256<int32_t> LookupLowBits(hwy::HWY_NAMESPACE::Vec256<int32_t> table,
                                                             hwy::HWY_NAMESPACE::Vec256<int32_t> index) {
  return {_mm256_permutevar8x32_epi32(table.raw, index.raw)};
}
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hwy::HWY_NAMESPACE::Vec512<int32_t> LookupLowBits(hwy::HWY_NAMESPACE::Vec512<int32_t> table,
                                                             hwy::HWY_NAMESPACE::Vec512<int32_t> index) {
  return {_mm512_permutexvar_epi32(index.raw, table.raw)};
}
#endif

// The steps of ExpImpl in quant/numeric/math.cc. kNonPositive: the caller knows that no x is above 0 (NaN is fine).
template <bool kNonPositive, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpOf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  namespace c = quant::constants;
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, c::kExpMagic);
  const V z = hn::MulAdd(x, hn::Set(d, c::kLog2E), magic);
  const V n = hn::Sub(z, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, c::kLn2Hi), x);
  r = hn::NegMulAdd(n, hn::Set(d, c::kLn2Lo), r);
  const V q = hn::MulAdd(hn::Set(d, c::kExpC3), r, hn::Set(d, c::kExpC2));
  const V p = hn::MulAdd(q, hn::Mul(r, r), r);
  const auto bits = hn::BitCast(di, z);
  const auto table = hn::Load(di, reinterpret_cast<const int32_t*>(kExpTable16));
  auto s = hn::Add(LookupLowBits(table, bits), hn::ShiftLeft<20>(bits));
  if constexpr (kNonPositive) {
    const V scale = hn::BitCast(d, s);
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, c::kExpMin)), hn::MulAdd(scale, p, scale));
  } else {
    const auto positive = hn::Gt(x, hn::Zero(d));
    s = hn::Sub(s, hn::IfThenElseZero(hn::RebindMask(di, positive), hn::Set(di, 1 << 23)));
    const V scale = hn::BitCast(d, s);
    V y = hn::MulAdd(scale, p, scale);
    y = hn::IfThenElse(positive, hn::Add(y, y), y);
    y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, c::kExpMin)), y);
    return hn::IfThenElse(hn::Gt(x, hn::Set(d, c::kExpMax)), hn::Inf(d), y);
  }
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  return ExpOf<false>(d, x);
}
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  return ExpOf<true>(d, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
