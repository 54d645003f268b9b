// From exponentials to the codes of probabilities. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_PROBS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_PROBS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_PROBS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_PROBS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/simd/lanes16-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// What the quantization of probabilities needs.
struct ProbQuant {
  float p_scale;
  float p_reciprocal;
  int32_t zero;  // VNNI: added, the zero point of the u8 form. s16: values stay centered, nothing is added
  int32_t high;  // s16: largest centered value
  int32_t nan;   // what a row without meaning becomes
  bool divide;   // the scale is so far from 1 that the reciprocal form could under- or overflow
  float
      diffusion;  // 256ths of a code that an exponential of 1 has where rests go to later keys (sdpa_diffuse-inl.h); 0: they do not
};

// RN(RN(e / sum) / p_scale), rounded half to even. The quotients are RN(x r) corrected once by the exact remainder
// (Markstein), equal to divisions: 3 operations each instead of the 10 cycles of vdivps zmm on Ice Lake. Where a
// remainder underflows, e is below 2^-100 and the result 0 either way.
template <bool kDivide>
HWY_INLINE S32V ProbToInt(F16V e, F16V sum, F16V sum_reciprocal, F16V scale, F16V scale_reciprocal) {
  namespace hn = hwy::HWY_NAMESPACE;
  F16V t;
  if constexpr (kDivide) {
    t = hn::Min(hn::Div(hn::Div(e, sum), scale), hn::Set(F16D(), 8388608.0f));
  } else {
    F16V prob = hn::Mul(e, sum_reciprocal);
    prob = hn::MulAdd(hn::NegMulAdd(prob, sum, e), sum_reciprocal, prob);
    t = hn::Mul(prob, scale_reciprocal);
    t = hn::MulAdd(hn::NegMulAdd(t, scale, prob), scale_reciprocal, t);
  }
#if HWY_TARGET == HWY_AVX2
  return {_mm256_cvtps_epi32(t.raw)};  // hn::NearestInt adds the repair of overflows, which cannot happen below 2^23
#else
  return {_mm512_cvtps_epi32(t.raw)};
#endif
}

// Factors between which e / sum / p_scale lies for every e: the two rounded divisions of the contract are off by at most
// 2^-23 of it, the factors, three roundings, by 0.75 * 2^-22. Where e * low and e * high round to the same integer, that is
// the contract's integer; a tie lies strictly between them, so it never passes for one. 3 operations a vector and no
// division, instead of 8.
struct ProbInterval {
  float low, high;
};
HWY_INLINE ProbInterval IntervalOf(const ProbQuant& quant, float sum) {
  const float factor = 1.0f / (sum * quant.p_scale);
  return {factor * (1 - 0x1.8p-22f), factor * (1 + 0x1.8p-22f)};
}
// The same for the rows of a block, all at once.
struct ProbIntervals {
  RowSlots<float> low, high;

  HWY_INLINE ProbIntervals(const ProbQuant& quant, const RowSlots<float>& sum) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Full256<float> d;
    const auto factor = hn::Div(hn::Set(d, 1.0f), hn::Mul(hn::Load(d, sum.at), hn::Set(d, quant.p_scale)));
    hn::Store(hn::Mul(factor, hn::Set(d, 1 - 0x1.8p-22f)), d, low.at);
    hn::Store(hn::Mul(factor, hn::Set(d, 1 + 0x1.8p-22f)), d, high.at);
  }
  HWY_INLINE ProbInterval operator[](size_t r) const { return {low[r], high[r]}; }

  // No e <= 1 leaves `largest` in the first kR rows, so nothing has to saturate. False for the NaN of a row without meaning.
  template <size_t kR>
  HWY_INLINE bool AreUsable(const ProbQuant& quant, float largest) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Full256<float> d;
    const auto usable = hn::Lt(hn::Load(d, high.at), hn::Set(d, largest + 0.49f));
    return !quant.divide && hn::AllTrue(d, hn::Or(usable, hn::Not(hn::FirstN(d, kR))));
  }
};
// The same for one row.
HWY_INLINE bool IsUsable(const ProbQuant& quant, const ProbInterval& interval, float largest) {
  return !quant.divide && interval.high < largest + 0.49f;
}
// doubt | (a ^ b)
HWY_INLINE S32V OrXor(S32V doubt, S32V a, S32V b) {
#if HWY_TARGET == HWY_AVX2
  return hwy::HWY_NAMESPACE::Or(doubt, hwy::HWY_NAMESPACE::Xor(a, b));
#else
  return {_mm512_ternarylogic_epi32(doubt.raw, a.raw, b.raw, 0xF6)};
#endif
}
inline constexpr float kProbMagic = 12582912.0f;  // 1.5 * 2^23: added to a float, it leaves the integer in the low bits

using CodeV = hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::Repartition<uint8_t, S32D>>;
// Four vectors of bits of 1.5 * 2^23 + code (kMagic), or of codes alone, codes of a byte, as bytes in order. Three shifts and two to four xor put byte j
// of all four into dword j (what the exponents leave there is a constant). VBMI: one permutation, where vpermt2b takes
// three slots a pair; else two, where packing takes five operations more for 32 codes.
template <bool kMagic = true>
HWY_INLINE CodeV LowBytes(S32V v0, S32V v1, S32V v2, S32V v3) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr uint32_t kBits = 0x4B400000, kRest = kBits ^ (kBits << 8) ^ (kBits << 16) ^ (kBits << 24);
  const S32D d;
  const S32V v012 = hn::Xor3(v0, hn::ShiftLeft<8>(v1), hn::ShiftLeft<16>(v2));
  S32V all = hn::Xor(v012, hn::ShiftLeft<24>(v3));
  if constexpr (kMagic) all = hn::Xor3(v012, hn::ShiftLeft<24>(v3), hn::Set(d, static_cast<int32_t>(kRest)));
  constexpr size_t kLanes = hn::MaxLanes(S32D());
#if HWY_TARGET <= HWY_AVX3_DL
  struct Order {
    uint8_t at[4 * kLanes];
  };
  alignas(64) static constexpr auto kOrder = [] {
    Order order{};
    for (size_t i = 0; i < 4 * kLanes; ++i) order.at[i] = static_cast<uint8_t>(4 * (i % kLanes) + i / kLanes);
    return order;
  }();
  return {_mm512_permutexvar_epi8(_mm512_load_si512(kOrder.at), all.raw)};
#else
  struct alignas(64) Order {
    uint8_t byte[4 * kLanes];
    int32_t dword[kLanes];
  };
  static constexpr auto kOrder = [] {
    Order order{};
    for (size_t i = 0; i < 4 * kLanes; ++i) order.byte[i] = static_cast<uint8_t>(4 * (i % 4) + i % 16 / 4);
    for (size_t i = 0; i < kLanes; ++i) order.dword[i] = static_cast<int32_t>(i % (kLanes / 4) * 4 + i / (kLanes / 4));
    return order;
  }();
  const Order* order = &kOrder;
  asm("" : "+r"(order));  // stays in memory: 16 ymm hold all but this
  const hn::Repartition<uint8_t, S32D> d8;
  const S32V dwords = hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(d8, all), hn::Load(d8, order->byte)));
  return hn::BitCast(d8, hn::TableLookupLanes(dwords, hn::SetTableIndices(d, order->dword)));
#endif
}

// total + the codes; kPairs: + what makes PairSums16.
template <bool kPairs>
HWY_INLINE S32V AddCodes(S32V total, CodeV codes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const S32D d32;
  const auto ones = hn::Set(hn::Repartition<int8_t, S32D>(), int8_t{1});
#if HWY_TARGET <= HWY_AVX3_DL
  static_assert(!kPairs);
  return hn::SumOfMulQuadAccumulate(d32, codes, ones, total);
#else
  if constexpr (!kPairs) return hn::Add(total, hn::BitCast(d32, hn::SumsOf8(codes)));
  return hn::Add(total, hn::BitCast(d32, hn::SatWidenMulPairwiseAdd(hn::Repartition<int16_t, S32D>(), codes, ones)));
#endif
}

// Chains of OrXor. One has 24 operations in a turn of six rows, which wait for a port each: with two a score takes 0.177 instead of
// 0.195 cycles (Granite Rapids, 384 keys; the ports allow 0.15). Three would be 0.168, but spill.
inline constexpr size_t kDoubts = kF16Lanes == 16 ? 2 : 1;

// Rows of QuantizeRowsByInterval whose numbers stay in registers.
template <bool kPairs, size_t kR>
HWY_INLINE void QuantizeSomeRows(const ProbQuant& quant, const ScoreRows& e, const ProbIntervals& intervals,
                                 size_t first, uint8_t* p, size_t stride, S32V& doubt, F16* totals) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const F16V magic = hn::Set(d, kProbMagic + static_cast<float>(quant.zero));
  const S32V none = hn::BitCast(d32, hn::Set(d, kProbMagic));
  const auto each = [](auto f) HWY_ATTR {
    HWY_UNROLL(6)
    for (size_t r = 0; r < kR; ++r) f(r);
  };
  F16V low[kR], high[kR];
  S32V total[kR], doubts[kDoubts];
  for (S32V& chain : doubts) chain = hn::Zero(d32);
  each([&](size_t r) HWY_ATTR {
    low[r] = hn::Set(d, intervals.low[first + r]), high[r] = hn::Set(d, intervals.high[first + r]);
    total[r] = hn::Zero(d32);
  });
  const auto at = [&](size_t r, const float* x) HWY_ATTR {
    const F16V v = hn::Load(d, x);
    const S32V a = hn::BitCast(d32, hn::MulAdd(v, low[r], magic)), b = hn::BitCast(d32, hn::MulAdd(v, high[r], magic));
    doubts[r % kDoubts] = OrXor(doubts[r % kDoubts], a, b);
    return a;
  };
  size_t i = 0;
  for (; i + 4 * kF16Lanes <= e.keys; i += 4 * kF16Lanes) {
    each([&](size_t r) HWY_ATTR {
      const float* x = e.Row(first + r) + i;
      const CodeV codes = LowBytes(at(r, x), at(r, x + kF16Lanes), at(r, x + 2 * kF16Lanes), at(r, x + 3 * kF16Lanes));
      hn::Store(codes, hn::Repartition<uint8_t, S32D>(), p + (first + r) * stride + i);
      total[r] = AddCodes<kPairs>(total[r], codes);
    });
  }
  for (; i < e.keys; i += 16) {
    each([&](size_t r) HWY_ATTR {
      const float* x = e.Row(first + r) + i;
      const CodeV codes = LowBytes(at(r, x), kF16Lanes == 8 ? at(r, x + 8) : none, none, none);
      hn::Store(hn::ResizeBitCast(hn::Full128<uint8_t>(), codes), hn::Full128<uint8_t>(), p + (first + r) * stride + i);
      total[r] = AddCodes<kPairs>(total[r], codes);
    });
  }
  for (const S32V& chain : doubts) doubt = hn::Or(doubt, chain);
  each([&](size_t r) HWY_ATTR { totals[first + r] = OCTAVO_F16(hn::BitCast(d, total[r]), hn::Zero(d)); });
}

// Rows of e to u8 at p + r * stride; row_sum[r] = what AddCodes adds up, padding (the zero point) included. False: nothing
// of it holds, a row needs its divisions. The zero point is part of the magic number. With 32 registers all rows take 64 keys
// before the next ones: a loop a row spends a third of its instructions outside of it at 128 keys.
template <bool kPairs, size_t kR>
HWY_INLINE bool QuantizeRowsByInterval(const ProbQuant& quant, const ScoreRows& e, const RowSlots<float>& sum,
                                       uint8_t* p, size_t stride, RowSlots<int32_t>& row_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const S32D d32;
  const ProbIntervals intervals(quant, sum);
  if (!intervals.AreUsable<kR>(quant, static_cast<float>(255 - quant.zero))) return false;
  constexpr size_t kOnce = kF16Lanes == 16 ? kR : 1;
  S32V doubt = hn::Zero(d32);
  F16 totals[kR];
  for (size_t r = 0; r < kR; r += kOnce) {
    QuantizeSomeRows<kPairs, kOnce>(quant, e, intervals, r, p, stride, doubt, totals);
  }
  FoldRows<kR>(totals, AddIntOp(), row_sum);
  return hn::AllTrue(d32, hn::Eq(doubt, hn::Zero(d32)));
}

#if HWY_TARGET <= HWY_AVX3_DL
// One row of e to u8; *row_sum = the sum of the bytes, padding (the zero point) included.
template <bool kDivide>
HWY_INLINE void QuantizeProbs(const ProbQuant& quant, const float* e, size_t keys, float sum_value, uint8_t* p,
                              int32_t* row_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const F16V sum = hn::Set(d, sum_value), reciprocal = hn::Set(d, 1.0f / sum_value);
  const F16V scale = hn::Set(d, quant.p_scale), scale_reciprocal = hn::Set(d, quant.p_reciprocal);
  const S32V zero = hn::Set(d32, quant.zero);
  S32V total = hn::Zero(d32);
  for (size_t i = 0; i < keys; i += 16) {
    const S32V v = hn::Add(ProbToInt<kDivide>(hn::Load(d, e + i), sum, reciprocal, scale, scale_reciprocal), zero);
    const auto bytes = hn::DemoteTo(hn::Full128<uint8_t>(), v);  // saturated
    hn::Store(bytes, hn::Full128<uint8_t>(), p + i);
    total = hn::Add(total, hn::PromoteTo(d32, bytes));
  }
  *row_sum = hn::ReduceSum(d32, total);
}
#endif

#if HWY_TARGET > HWY_AVX3_DL
// The low halves of sixteen lanes, in order.
#if HWY_TARGET == HWY_AVX2
HWY_INLINE hwy::HWY_NAMESPACE::Vec256<int16_t> LowHalves(S32V a, S32V b) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i packed =
      _mm256_packus_epi32(_mm256_blend_epi16(a.raw, zero, 0xAA), _mm256_blend_epi16(b.raw, zero, 0xAA));
  return {_mm256_permute4x64_epi64(packed, 0xD8)};
}
#else
HWY_INLINE hwy::HWY_NAMESPACE::Vec256<int16_t> LowHalves(S32V a) { return {_mm512_cvtepi32_epi16(a.raw)}; }
#endif

// emit(i, words) for each sixteen keys. False where an integer is in doubt.
template <class Emit>
HWY_INLINE bool ByInterval(const ProbInterval& interval, int32_t zero, const float* e, size_t keys, Emit emit) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const F16V low = hn::Set(d, interval.low), high = hn::Set(d, interval.high);
  const F16V magic = hn::Set(d, kProbMagic + static_cast<float>(zero));
  S32V doubt = hn::Zero(d32);
  const auto at = [&](size_t i) HWY_ATTR {
    const F16V x = hn::Load(d, e + i);
    const S32V a = hn::BitCast(d32, hn::MulAdd(x, low, magic)), b = hn::BitCast(d32, hn::MulAdd(x, high, magic));
    doubt = OrXor(doubt, a, b);
    return a;
  };
  for (size_t i = 0; i < keys; i += 16) {
#if HWY_TARGET == HWY_AVX2
    emit(i, LowHalves(at(i), at(i + 8)));
#else
    emit(i, LowHalves(at(i)));
#endif
  }
  return hn::AllTrue(d32, hn::Eq(doubt, hn::Zero(d32)));
}
#endif

// A code that meets its neighbour in vpmaddubsw (sdpa_pairs-inl.h).
enum class PairCode : uint8_t {};
// The sums of a row's codes at places 0 and 1 of each word, and of those at 2 and 3. 16 bits each are enough: the codes of
// a row sum to at most 255 + keys / 2, relative ones in each half to at most 511 * 128 (ProbPairsFit).
struct PairSums16 {
  int32_t first, second;
  HWY_INLINE explicit PairSums16(int32_t packed)
      : first(packed & 0xFFFF), second(static_cast<int32_t>(static_cast<uint32_t>(packed) >> 16)) {}
};

#if HWY_TARGET > HWY_AVX3_DL
// One row of e to u8. What is added up, kPairs: PairSums16; else the bytes, padding (the zero point) included.
template <bool kDivide, bool kPairs>
HWY_INLINE void QuantizeBytes(const ProbQuant& quant, const float* e, size_t keys, float sum_value, uint8_t* p,
                              int32_t* row_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const hn::Full128<uint8_t> d8;
  const hn::Full128<uint32_t> du;
  const auto ones = hn::Set(hn::Full128<int8_t>(), int8_t{1});
  auto total = hn::Zero(hn::Full128<uint64_t>());
  const auto emit = [&](size_t i, hn::Vec256<int16_t> words) HWY_ATTR {
    const auto bytes = hn::DemoteTo(d8, words);  // saturated
    hn::Store(bytes, d8, p + i);
    if constexpr (kPairs) {
      const auto pairs = hn::SatWidenMulPairwiseAdd(hn::Full128<int16_t>(), bytes, ones);
      total = hn::BitCast(hn::Full128<uint64_t>(), hn::Add(hn::BitCast(du, total), hn::BitCast(du, pairs)));
    } else {
      total = hn::Add(total, hn::SumsOf8(bytes));
    }
  };
  const ProbInterval interval = IntervalOf(quant, sum_value);
  if (kDivide || !IsUsable(quant, interval, static_cast<float>(255 - quant.zero)) ||
      !ByInterval(interval, quant.zero, e, keys, emit)) {
    const F16V sum = hn::Set(d, sum_value), reciprocal = hn::Set(d, 1.0f / sum_value);
    const F16V scale = hn::Set(d, quant.p_scale), scale_reciprocal = hn::Set(d, quant.p_reciprocal);
    const S32V zero = hn::Set(d32, quant.zero);
    const auto at = [&](size_t i) HWY_ATTR {
      return hn::Add(ProbToInt<kDivide>(hn::Load(d, e + i), sum, reciprocal, scale, scale_reciprocal), zero);
    };
    total = hn::Zero(hn::Full128<uint64_t>());
    for (size_t i = 0; i < keys; i += 16) {
#if HWY_TARGET == HWY_AVX2
      emit(i, hn::OrderedDemote2To(hn::Full256<int16_t>(), at(i), at(i + 8)));
#else
      emit(i, hn::DemoteTo(hn::Full256<int16_t>(), at(i)));
#endif
    }
  }
  if constexpr (kPairs) {
    *row_sum = static_cast<int32_t>(hn::ReduceSum(du, hn::BitCast(du, total)));
  } else {
    *row_sum = static_cast<int32_t>(hn::ReduceSum(hn::Full128<uint64_t>(), total));
  }
}
template <bool kDivide>
HWY_INLINE void QuantizeProbs(const ProbQuant& quant, const float* e, size_t keys, float sum, uint8_t* p,
                              int32_t* row_sum) {
  QuantizeBytes<kDivide, false>(quant, e, keys, sum, p, row_sum);
}
template <bool kDivide>
HWY_INLINE void QuantizeProbs(const ProbQuant& quant, const float* e, size_t keys, float sum, PairCode* p,
                              int32_t* row_sum) {
  QuantizeBytes<kDivide, true>(quant, e, keys, sum, reinterpret_cast<uint8_t*>(p), row_sum);
}
#endif

#if HWY_TARGET > HWY_AVX3_DL
// One row of e to s16, less the zero point.
template <bool kDivide>
HWY_INLINE void QuantizeProbs(const ProbQuant& quant, const float* e, size_t keys, float sum_value, int16_t* p,
                              int32_t*) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const hn::Full256<int16_t> d16;
  const auto emit = [&](size_t i, hn::Vec256<int16_t> words) HWY_ATTR { hn::Store(words, d16, p + i); };
  const ProbInterval interval = IntervalOf(quant, sum_value);
  if (!kDivide && IsUsable(quant, interval, static_cast<float>(quant.high)) && ByInterval(interval, 0, e, keys, emit)) {
    return;
  }
  const F16V sum = hn::Set(d, sum_value), reciprocal = hn::Set(d, 1.0f / sum_value);
  const F16V scale = hn::Set(d, quant.p_scale), scale_reciprocal = hn::Set(d, quant.p_reciprocal);
  const S32V high = hn::Set(d32, quant.high);
  const auto at = [&](size_t i) HWY_ATTR {
    return hn::Min(ProbToInt<kDivide>(hn::Load(d, e + i), sum, reciprocal, scale, scale_reciprocal), high);
  };
  for (size_t i = 0; i < keys; i += 16) {
#if HWY_TARGET == HWY_AVX2
    emit(i, hn::OrderedDemote2To(d16, at(i), at(i + 8)));
#else
    emit(i, hn::DemoteTo(d16, at(i)));
#endif
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
