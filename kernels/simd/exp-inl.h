// quant::Exp in vectors, bit for bit. Per target: include after hwy/foreach_target.h.
#if defined(OCTAVO_KERNELS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_EXP_INL_H_
#undef OCTAVO_KERNELS_SIMD_EXP_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_EXP_INL_H_
#endif

#include <bit>
#include <cstddef>
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

// 2^(i/8), twice.
alignas(64) inline constexpr auto kExpPowers16 = [] {
  struct {
    float at[16];
  } powers{};
  for (uint32_t i = 0; i < 16; ++i)
    powers.at[i] = std::bit_cast<float>(quant::constants::kExpTable[i % 8] + ((i % 8) << 20));
  return powers;
}();

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
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kNonPositive &&
                hn::MaxLanes(D()) == 16) {  // 13 operations instead of 15, the same bits: nothing is subnormal
    const __m512 power = _mm512_permutexvar_ps(_mm512_castps_si512(z.raw), _mm512_load_ps(kExpPowers16.at));
    const __mmask16 keep = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(c::kExpMin), _CMP_NLT_UQ);
    return V{_mm512_maskz_scalef_ps(keep, _mm512_fmadd_ps(power, p.raw, power), n.raw)};
  }
#endif
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

#if HWY_TARGET <= HWY_AVX3
// Applied to each of kN rows.
#define OCTAVO_EACH HWY_UNROLL(8) for (size_t j = 0; j < kN; ++j)

// ExpNonPositive in two halves, so that the second half of a vector runs beside the first one of the next: the whole is a
// chain of 40 cycles, and what of it waits fills the scheduler (measured: 0.48 instead of 0.57 cycles a value). vscalefps
// takes the place of a shift and an addition.
template <size_t kN>
struct ExpHalves {
  using D = hwy::HWY_NAMESPACE::Full512<float>;
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  V n[kN], r[kN], power[kN];
  __mmask16 keep[kN];

  HWY_INLINE void First(const V (&x)[kN]) {
    namespace hn = hwy::HWY_NAMESPACE;
    namespace c = quant::constants;
    const D d;
    const V magic = hn::Set(d, c::kExpMagic), powers = hn::Load(d, kExpPowers16.at);
    V z[kN];
    OCTAVO_EACH z[j] = hn::MulAdd(x[j], hn::Set(d, c::kLog2E), magic);
    OCTAVO_EACH n[j] = hn::Sub(z[j], magic);
    OCTAVO_EACH r[j] = hn::NegMulAdd(n[j], hn::Set(d, c::kLn2Hi), x[j]);
    OCTAVO_EACH keep[j] = _mm512_cmp_ps_mask(x[j].raw, _mm512_set1_ps(c::kExpMin), _CMP_NLT_UQ);
    OCTAVO_EACH r[j] = hn::NegMulAdd(n[j], hn::Set(d, c::kLn2Lo), r[j]);
    OCTAVO_EACH power[j].raw = _mm512_permutexvar_ps(_mm512_castps_si512(z[j].raw), powers.raw);
  }
  // e^x of this half, and the first half of the next x.
  HWY_INLINE void Second(V (&x)[kN], V (&e)[kN]) {
    namespace hn = hwy::HWY_NAMESPACE;
    namespace c = quant::constants;
    const D d;
    const V magic = hn::Set(d, c::kExpMagic), powers = hn::Load(d, kExpPowers16.at);
    V q[kN], z[kN], next[kN];
    OCTAVO_EACH q[j] = hn::MulAdd(hn::Set(d, c::kExpC3), r[j], hn::Set(d, c::kExpC2));
    OCTAVO_EACH e[j] = hn::Mul(r[j], r[j]);
    OCTAVO_EACH z[j] = hn::MulAdd(x[j], hn::Set(d, c::kLog2E), magic);
    OCTAVO_EACH r[j] = hn::MulAdd(q[j], e[j], r[j]);
    OCTAVO_EACH next[j] = hn::Sub(z[j], magic);
    OCTAVO_EACH e[j] = hn::MulAdd(power[j], r[j], power[j]);
    OCTAVO_EACH r[j] = hn::NegMulAdd(next[j], hn::Set(d, c::kLn2Hi), x[j]);
    OCTAVO_EACH e[j].raw = _mm512_maskz_scalef_ps(keep[j], e[j].raw, n[j].raw);
    OCTAVO_EACH keep[j] = _mm512_cmp_ps_mask(x[j].raw, _mm512_set1_ps(c::kExpMin), _CMP_NLT_UQ);
    OCTAVO_EACH r[j] = hn::NegMulAdd(next[j], hn::Set(d, c::kLn2Lo), r[j]);
    OCTAVO_EACH n[j] = next[j];
    OCTAVO_EACH power[j].raw = _mm512_permutexvar_ps(_mm512_castps_si512(z[j].raw), powers.raw);
  }
};
#undef OCTAVO_EACH
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
