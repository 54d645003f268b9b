// From exponentials to codes whose rests go to later keys (p_diffused in sdpa.h). Per target.
//
// A lane keeps the rest of its keys: a product, a conversion, a sum, a shift and a mask for sixteen keys, and nothing is in doubt, since
// the 256ths are rounded floats and all else is integers. Plain codes take two products, since their scale comes after a division.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_DIFFUSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_DIFFUSE_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_DIFFUSE_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_DIFFUSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_probs-inl.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

inline constexpr size_t kHalves = 16 / kF16Lanes;  // vectors that make sixteen lanes

// 256ths of codes, rounded to even.
HWY_INLINE S32V PartsOf(const float* e, F16V factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16V parts = hn::Mul(hn::Load(F16D(), e), factor);
#if HWY_TARGET == HWY_AVX2
  return {_mm256_cvtps_epi32(parts.raw)};  // hn::NearestInt adds the repair of overflows, which cannot happen
#else
  return {_mm512_cvtps_epi32(parts.raw)};
#endif
}

// What sixteen lanes of keys have left over, in 256ths.
struct Rest {
  S32V half[kHalves];

  HWY_INLINE Rest() {
    for (S32V& h : half) h = hwy::HWY_NAMESPACE::Set(S32D(), 128);
  }
  // Behind the keys [begin, end) of a row.
  HWY_INLINE void After(const ProbQuant& quant, const float* e, size_t begin, size_t end) {
    namespace hn = hwy::HWY_NAMESPACE;
    const F16V factor = hn::Set(F16D(), quant.diffusion);
    for (size_t i = begin; i < end; i += 16) {
      for (size_t h = 0; h < kHalves; ++h) half[h] = hn::Add(half[h], PartsOf(e + i + h * kF16Lanes, factor));
    }
    for (S32V& h : half) h = hn::And(h, hn::Set(S32D(), 255));
  }
  // The codes of the next keys of a half.
  HWY_INLINE S32V Code(size_t h, const float* e, F16V factor) {
    namespace hn = hwy::HWY_NAMESPACE;
    const S32V all = hn::Add(half[h], PartsOf(e, factor));
    half[h] = hn::And(all, hn::Set(S32D(), 255));
    return hn::ShiftRight<8>(all);
  }
};

// kR rows to u8 at p + r * stride; totals: what AddCodes adds up.
template <bool kPairs, size_t kR>
HWY_INLINE void DiffuseBytes(const ProbQuant& quant, const ScoreRows& e, uint8_t* p, size_t stride, Rest (&rest)[kR],
                             F16* totals) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const F16V factor = hn::Set(d, quant.diffusion);
  const S32V none = hn::Zero(d32);
  const auto each = [](auto f) HWY_ATTR {
    HWY_UNROLL(6)
    for (size_t r = 0; r < kR; ++r) f(r);
  };
  S32V total[kR];
  each([&](size_t r) HWY_ATTR { total[r] = none; });
  const auto at = [&](size_t r, const float* x, size_t v)
                      HWY_ATTR { return rest[r].Code(v % kHalves, x + v * kF16Lanes, factor); };
  size_t i = 0;
  for (; i + 4 * kF16Lanes <= e.keys; i += 4 * kF16Lanes) {
    each([&](size_t r) HWY_ATTR {
      const float* x = e.Row(r) + i;
      const S32V v0 = at(r, x, 0), v1 = at(r, x, 1), v2 = at(r, x, 2), v3 = at(r, x, 3);  // in this order
      const CodeV codes = LowBytes<false>(v0, v1, v2, v3);
      hn::Store(codes, hn::Repartition<uint8_t, S32D>(), p + r * stride + i);
      total[r] = AddCodes<kPairs>(total[r], codes);
    });
  }
  for (; i < e.keys; i += 16) {
    each([&](size_t r) HWY_ATTR {
      const float* x = e.Row(r) + i;
      const S32V v0 = at(r, x, 0), v1 = kHalves == 2 ? at(r, x, 1) : none;
      const CodeV codes = LowBytes<false>(v0, v1, none, none);
      hn::Store(hn::ResizeBitCast(hn::Full128<uint8_t>(), codes), hn::Full128<uint8_t>(), p + r * stride + i);
      total[r] = AddCodes<kPairs>(total[r], codes);
    });
  }
  each([&](size_t r) HWY_ATTR { totals[r] = OCTAVO_F16(hn::BitCast(d, total[r]), hn::Zero(d)); });
}

// kR rows; row_sums as QuantizeSpans gives them.
template <class Prob, size_t kR>
HWY_INLINE void DiffuseRows(const ProbQuant& quant, const ScoreRows& e, const RowSlots<float>& sum, uint8_t* p,
                            size_t stride, RowSlots<int32_t>& row_sums) {
  constexpr bool kPairs = std::is_same_v<Prob, PairCode>;
  constexpr size_t kOnce = kF16Lanes == 16 ? kR : 1;  // with 32 registers
  F16 totals[kR];
  for (size_t r = 0; r < kR; r += kOnce) {
    Rest rest[kOnce];
    DiffuseBytes<kPairs, kOnce>(quant, e.From(r), p + r * stride, stride, rest, totals + r);
  }
  FoldRows<kR>(totals, AddIntOp(), row_sums);
  for (size_t r = 0; r < kR; ++r) {
    if (sum[r] == sum[r]) continue;  // a NaN is no code
    std::memset(p + r * stride, 0, (e.keys + 15) / 16 * 16);
    row_sums[r] = 0;
  }
}

// One row, or a part of it behind others; returns what QuantizeRow tells of it.
template <class Prob>
HWY_INLINE int32_t DiffuseRow(const ProbQuant& quant, const ScoreRows& e, float sum, Prob* p, Rest& rest) {
  if (sum != sum) {
    std::memset(static_cast<void*>(p), 0, (e.keys + 15) / 16 * 16 * sizeof(Prob));
    return 0;
  }
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (sizeof(Prob) == 1) {
    Rest rests[1] = {rest};
    F16 totals[1];
    DiffuseBytes<std::is_same_v<Prob, PairCode>, 1>(quant, e, reinterpret_cast<uint8_t*>(p), 0, rests, totals);
    return hn::ReduceSum(S32D(), hn::BitCast(S32D(), totals[0].a));
  } else {
#if HWY_TARGET > HWY_AVX3_DL
    const F16V factor = hn::Set(F16D(), quant.diffusion);
    const float* x = e.Row(0);
    for (size_t i = 0; i < e.keys; i += 16) {
      const S32V low = rest.Code(0, x + i, factor);
#if HWY_TARGET == HWY_AVX2
      hn::Store(LowHalves(low, rest.Code(1, x + i + 8, factor)), hn::Full256<int16_t>(), p + i);
#else
      hn::Store(LowHalves(low), hn::Full256<int16_t>(), p + i);
#endif
    }
#endif
    return 0;  // SumOfCodes looks at the words
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
