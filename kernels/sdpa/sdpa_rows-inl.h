// From scores to quantized probabilities, for kR query rows at a time: every pass is short, and one row alone would
// leave the machine waiting for the end of each (kernels.md 10.4: 0.2 to 0.3 cycles a score). Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "octavo/kernels/elementwise/activations-inl.h"
#include "octavo/kernels/simd/exp-inl.h"
#include "octavo/kernels/simd/lanes16-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Sixteen int32 lanes, beside F16.
using S32D = hwy::HWY_NAMESPACE::RebindToSigned<F16D>;
using S32V = hwy::HWY_NAMESPACE::Vec<S32D>;

// The rows of a block: row r begins at base + r * stride bytes.
struct ScoreRows {
  uint8_t* base;
  size_t stride;
  size_t keys;

  HWY_INLINE float* Row(size_t r) const { return reinterpret_cast<float*>(base + r * stride); }
  HWY_INLINE ScoreRows From(size_t r) const { return {base + r * stride, stride, keys}; }
};

// Rows that a pass keeps in registers: with 16 ymm, the sums or maxima of more go to the stack and back in every turn.
template <size_t kR>
inline constexpr size_t kScoreRowsAtOnce = kF16Lanes == 16 ? kR : HWY_MIN(kR, size_t{2});
template <size_t kR>
inline constexpr size_t kExpRowsAtOnce = kF16Lanes == 16 ? kR : 1;

// Masks of the rows; `row` and `col` are strides in elements.
struct MaskRows {
  const float* data;
  int64_t row;
  int64_t col;
};

HWY_INLINE F16 ConvertScores(const float* p, F16 factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto f = [&](const float* q, F16V scale) HWY_ATTR {
    return hn::Mul(hn::ConvertTo(F16D(), hn::Load(S32D(), reinterpret_cast<const int32_t*>(q))), scale);
  };
  return OCTAVO_F16(f(p, factor.a), f(p + 8, factor.b));
}

template <bool kInt, bool kScale>
HWY_INLINE F16 ScoreAt(const float* p, F16 factor, F16 scale) {
  F16 s;
  if constexpr (kInt) {
    s = ConvertScores(p, factor);
  } else {
    s = Load16(p);
  }
  if constexpr (kScale) s = Mul16(s, scale);
  return s;
}

// s = float(acc) * factor (kInt), * scale (kScale), + mask (kMask), stored over acc; -inf beyond the keys. max[r]: over
// the row.
template <size_t kR, bool kInt, bool kScale, bool kMask>
HWY_INLINE void ScorePass(const ScoreRows& rows, float factor_value, float scale_value, const MaskRows& mask,
                          float* max) {
  constexpr size_t kOnce = kScoreRowsAtOnce<kR>;
  if constexpr (kOnce < kR) {
    static_assert(kR % kOnce == 0);
    for (size_t r = 0; r < kR; r += kOnce) {
      const MaskRows part = {kMask ? mask.data + static_cast<int64_t>(r) * mask.row : nullptr, mask.row, mask.col};
      ScorePass<kOnce, kInt, kScale, kMask>(rows.From(r), factor_value, scale_value, part, max + r);
    }
    return;
  }
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  const F16 factor = Set16(factor_value);
  const F16 scale = Set16(scale_value);
  const size_t whole = rows.keys / 16 * 16;
  const size_t rest = rows.keys - whole;
  F16 m[kR];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; ++r) m[r] = Set16(kLow);
  if (!kMask || mask.col != 0) {
    for (size_t i = 0; i < whole; i += 16) {
      HWY_UNROLL(6)
      for (size_t r = 0; r < kR; ++r) {
        float* p = rows.Row(r) + i;
        F16 s = ScoreAt<kInt, kScale>(p, factor, scale);
        if constexpr (kMask) s = Add16(s, Load16(mask.data + static_cast<int64_t>(r) * mask.row + i));
        m[r] = Max16(s, m[r]);
        Store16(s, p);
      }
    }
  } else {  // one number for all keys of a row
    for (size_t r = 0; r < kR; ++r) {
      const F16 add = Set16(mask.data[static_cast<int64_t>(r) * mask.row]);
      for (size_t i = 0; i < whole; i += 16) {
        float* p = rows.Row(r) + i;
        const F16 s = Add16(ScoreAt<kInt, kScale>(p, factor, scale), add);
        m[r] = Max16(s, m[r]);
        Store16(s, p);
      }
    }
  }
  for (size_t r = 0; r < kR; ++r) {
    if (rest != 0) {
      float* p = rows.Row(r) + whole;
      F16 s = ScoreAt<kInt, kScale>(p, factor, scale);
      if constexpr (kMask) {
        const float* add = mask.data + static_cast<int64_t>(r) * mask.row;
        s = Add16(s, mask.col != 0 ? LoadN16(add + whole, rest) : Set16(*add));
      }
      Store16(s, p);
      for (size_t i = rest; i < 16; ++i) p[i] = kLow;
      m[r] = Max16(Load16(p), m[r]);
    }
    max[r] = MaxLane(m[r]);
  }
}

// s = Tanh(s / cap) * cap over scores that ScorePass has written; what lies beyond the keys is set anew by the next one.
template <size_t kR>
HWY_INLINE void CapPass(const ScoreRows& rows, float cap_value) {
  const F16 cap = Set16(cap_value);
  for (size_t r = 0; r < kR; ++r) {
    for (size_t i = 0; i < rows.keys; i += 16) {
      float* p = rows.Row(r) + i;
      const F16 x = Div16(Load16(p), cap);
      Store16(Mul16(OCTAVO_F16(Tanh(F16D(), x.a), Tanh(F16D(), x.b)), cap), p);
    }
  }
}

// e = Exp(s - max), over s; sum[r] in the sixteen lanes of the contract. Exactly 0 beyond the keys.
template <size_t kR>
HWY_INLINE void ExpPass(const ScoreRows& rows, const float* max, float* sum) {
  constexpr size_t kOnce = kExpRowsAtOnce<kR>;
  if constexpr (kOnce < kR) {
    for (size_t r = 0; r < kR; r += kOnce) ExpPass<kOnce>(rows.From(r), max + r, sum + r);
    return;
  }
  F16 m[kR], total[kR];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; ++r) {
    m[r] = Set16(max[r]);
    total[r] = Set16(0.0f);
  }
  for (size_t i = 0; i < rows.keys; i += 16) {
    HWY_UNROLL(6)
    for (size_t r = 0; r < kR; ++r) {
      float* p = rows.Row(r) + i;
      const F16 x = Sub16(Load16(p), m[r]);
      const F16 e = OCTAVO_F16(ExpNonPositive(F16D(), x.a), ExpNonPositive(F16D(), x.b));
      Store16(e, p);
      total[r] = Add16(total[r], e);
    }
  }
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; ++r) sum[r] = SumLanes(total[r]);
}

// prob = e / sum, over e. NaN rows stay NaN.
HWY_INLINE void DividePass(const ScoreRows& rows, size_t r, float sum) {
  const F16 s = Set16(sum);
  float* p = rows.Row(r);
  for (size_t i = 0; i < rows.keys; i += 16) Store16(Div16(Load16(p + i), s), p + i);
}

// What the quantization of probabilities needs.
struct ProbQuant {
  float p_scale;
  float p_reciprocal;
  int32_t zero;  // VNNI: added, the zero point of the u8 form. s16: values stay centered, nothing is added
  int32_t high;  // s16: largest centered value
  int32_t nan;   // what a row without meaning becomes
  bool divide;   // the scale is so far from 1 that the reciprocal form could under- or overflow
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

// Factors between which e / sum / p_scale lies for every e: the two rounded divisions of the contract are off by less than
// 2^-22 of it. Where e * low and e * high round to the same integer, that is the contract's integer; a tie lies strictly
// between them, so it never passes for one. 3 operations a vector and no division, instead of 8.
struct ProbInterval {
  float low, high;
  bool usable;  // no e <= 1 leaves `largest`, so nothing has to saturate
};
HWY_INLINE ProbInterval IntervalOf(const ProbQuant& quant, float sum, float largest) {
  const double factor = 1.0 / (static_cast<double>(sum) * static_cast<double>(quant.p_scale));
  const auto high = static_cast<float>(factor * (1 + 0x1p-22));
  return {static_cast<float>(factor * (1 - 0x1p-22)), high, !quant.divide && high < largest + 0.49f};
}
inline constexpr float kProbMagic = 12582912.0f;  // 1.5 * 2^23: added to a float, it leaves the integer in the low bits

#if HWY_TARGET <= HWY_AVX3_DL
// Vectors whose low bytes are probabilities, as bytes in order: the first two in the lower half and so on.
HWY_INLINE hwy::HWY_NAMESPACE::Vec512<uint8_t> LowBytes(S32V v0, S32V v1, S32V v2, S32V v3) {
  alignas(64) static constexpr auto kPick = [] {
    struct {
      uint8_t at[64];
    } pick{};
    for (int i = 0; i < 64; ++i) pick.at[i] = static_cast<uint8_t>(4 * (i % 32));
    return pick;
  }();
  const __m512i pick = _mm512_load_si512(kPick.at);
  const __m512i low = _mm512_permutex2var_epi8(v0.raw, pick, v1.raw),
                high = _mm512_permutex2var_epi8(v2.raw, pick, v3.raw);
  return {_mm512_mask_blend_epi64(0xF0, low, high)};
}

// The zero point is part of the magic number. False where an integer is in doubt.
HWY_INLINE bool QuantizeByInterval(const ProbQuant& quant, const ProbInterval& interval, const float* e, size_t keys,
                                   uint8_t* p, int32_t* row_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const F16V low = hn::Set(d, interval.low), high = hn::Set(d, interval.high);
  const F16V magic = hn::Set(d, kProbMagic + static_cast<float>(quant.zero));
  const auto ones = hn::Set(hn::Full512<int8_t>(), int8_t{1});
  S32V doubt = hn::Zero(d32), total = hn::Zero(d32);
  const auto at = [&](size_t i) HWY_ATTR {
    const F16V x = hn::Load(d, e + i);
    const S32V a = hn::BitCast(d32, hn::MulAdd(x, low, magic)), b = hn::BitCast(d32, hn::MulAdd(x, high, magic));
    doubt.raw = _mm512_ternarylogic_epi32(doubt.raw, a.raw, b.raw, 0xF6);  // doubt | (a ^ b)
    return a;
  };
  size_t i = 0;
  for (; i + 64 <= keys; i += 64) {
    const auto bytes = LowBytes(at(i), at(i + 16), at(i + 32), at(i + 48));
    hn::Store(bytes, hn::Full512<uint8_t>(), p + i);
    total = hn::SumOfMulQuadAccumulate(d32, bytes, ones, total);
  }
  for (; i < keys; i += 16) {
    const S32V v = hn::And(at(i), hn::Set(d32, 255));
    hn::Store(hn::Vec128<uint8_t>{_mm512_cvtepi32_epi8(v.raw)}, hn::Full128<uint8_t>(), p + i);
    total = hn::Add(total, v);
  }
  *row_sum = hn::ReduceSum(d32, total);
  return hn::AllTrue(d32, hn::Eq(doubt, hn::Zero(d32)));
}

// One row of e to u8; *row_sum = the sum of the bytes, padding (the zero point) included.
template <bool kDivide>
HWY_INLINE void QuantizeProbs(const ProbQuant& quant, const float* e, size_t keys, float sum_value, uint8_t* p,
                              int32_t* row_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (!kDivide) {
    const ProbInterval interval = IntervalOf(quant, sum_value, static_cast<float>(255 - quant.zero));
    if (interval.usable && QuantizeByInterval(quant, interval, e, keys, p, row_sum)) return;
  }
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
    doubt = hn::Or(doubt, hn::Xor(a, b));
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

#if HWY_TARGET == HWY_AVX2
// One row of e to u8; *row_sum = the sum of the bytes, padding (the zero point) included.
template <bool kDivide>
HWY_INLINE void QuantizeProbs(const ProbQuant& quant, const float* e, size_t keys, float sum_value, uint8_t* p,
                              int32_t* row_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  const hn::Full128<uint8_t> d8;
  auto total = hn::Zero(hn::Full128<uint64_t>());
  const auto emit = [&](size_t i, hn::Vec256<int16_t> words) HWY_ATTR {
    const auto bytes = hn::DemoteTo(d8, words);  // saturated
    hn::Store(bytes, d8, p + i);
    total = hn::Add(total, hn::SumsOf8(bytes));
  };
  const ProbInterval interval = IntervalOf(quant, sum_value, static_cast<float>(255 - quant.zero));
  if (kDivide || !interval.usable || !ByInterval(interval, quant.zero, e, keys, emit)) {
    const F16V sum = hn::Set(d, sum_value), reciprocal = hn::Set(d, 1.0f / sum_value);
    const F16V scale = hn::Set(d, quant.p_scale), scale_reciprocal = hn::Set(d, quant.p_reciprocal);
    const S32V zero = hn::Set(d32, quant.zero);
    const auto at = [&](size_t i) HWY_ATTR {
      return hn::Add(ProbToInt<kDivide>(hn::Load(d, e + i), sum, reciprocal, scale, scale_reciprocal), zero);
    };
    total = hn::Zero(hn::Full128<uint64_t>());
    for (size_t i = 0; i < keys; i += 16) emit(i, hn::OrderedDemote2To(hn::Full256<int16_t>(), at(i), at(i + 8)));
  }
  *row_sum = static_cast<int32_t>(hn::ReduceSum(hn::Full128<uint64_t>(), total));
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
  const ProbInterval interval = IntervalOf(quant, sum_value, static_cast<float>(quant.high));
  if (!kDivide && interval.usable && ByInterval(interval, 0, e, keys, emit)) return;
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
