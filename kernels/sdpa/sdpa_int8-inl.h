// What the int8 forms share: zero points, packing, query rows, quantized probabilities. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_INT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_INT8_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_INT8_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_INT8_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_diffuse-inl.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"
#include "octavo/kernels/sdpa/sdpa_pack512-inl.h"
#include "octavo/kernels/sdpa/sdpa_probs-inl.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/quant/numeric/rounding.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using internal::SdpaLayout;

// The operands of the int8 products as the engine takes them. VNNI multiplies u8 rows by s8 columns: the other kind has
// its top bit flipped, and its zero point moves by 128. The s16 form works on values less their zero point.
struct Int8Forms {
  uint8_t q_flip, k_flip, v_flip;
  int32_t q_zero, k_zero, v_zero, p_zero;
};
HWY_INLINE Int8Forms FormsOf(const SdpaInt8Args& args) {
  const auto is_signed = [](quant::DType t) { return t == quant::DType::kS8; };
  Int8Forms f{};
  f.q_flip = is_signed(args.q_type) ? 0x80 : 0;
  f.k_flip = is_signed(args.k_type) ? 0 : 0x80;
  f.v_flip = is_signed(args.v_type) ? 0 : 0x80;
  f.q_zero = args.q_zero_point + (is_signed(args.q_type) ? 128 : 0);
  f.k_zero = args.k_zero_point - (is_signed(args.k_type) ? 0 : 128);
  f.v_zero = args.v_zero_point - (is_signed(args.v_type) ? 0 : 128);
  f.p_zero = args.p_zero_point + (is_signed(args.p_type) ? 128 : 0);
  return f;
}

// terms[c] = count * row_zero * column_zero - row_zero * sum of column c. Wraps like the products.
template <class E>
void ColumnTerms(const uint8_t* panels, size_t columns16, size_t steps, int32_t count, int32_t row_zero,
                 int32_t column_zero, int32_t* terms) {
  const I16D d;
  const I16V ones = hn::Set(d, 0x01010101);
  const I16V constant = hn::Set(d, count * row_zero * column_zero);
  for (size_t c = 0; c < columns16; c += kTileLanes) {
    const uint8_t* b = panels + c / 16 * 16 * steps * 4 + c % 16 * 4;
    const auto dot = [&](I16V& sum, size_t i)
                         HWY_ATTR { E::Dot(sum, ones, hn::Load(d, reinterpret_cast<const int32_t*>(b + i * 64))); };
    I16V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    size_t i = row_zero == 0 ? steps : 0;  // nothing to add up
    for (; i + 4 <= steps; i += 4) dot(s0, i), dot(s1, i + 1), dot(s2, i + 2), dot(s3, i + 3);
    for (; i < steps; ++i) dot(s0, i);
    const I16V sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    hn::Store(hn::Sub(constant, hn::Mul(sum, hn::Set(d, row_zero))), d, terms + c);
  }
}

// Rows of K, or of a tile of it, as `k16` columns, and what zero points contribute to each.
template <class E>
HWY_INLINE void PackKeys(const SdpaInt8Args& args, const HeadRows<uint8_t>& k, size_t k16, size_t d_steps, uint8_t* out,
                         int32_t* terms) {
  if constexpr (E::kPerWord == 4) {
    const Int8Forms f = FormsOf(args);
    const auto load = [&](size_t row, size_t step)
                          HWY_ATTR { return hn::BitCast(Words(), LoadBytes(k, row, step * 4, f.k_flip)); };
#if HWY_TARGET <= HWY_AVX3_DL
    const size_t done = PackWholePanels(k, d_steps, f.k_flip, out);
#else
    const size_t done = 0;
#endif
    PackRowsAsColumns(k16, d_steps, load, out, done);
    ColumnTerms<E>(out, k16, d_steps, static_cast<int32_t>(args.shape.head_size), f.q_zero, f.k_zero, terms);
  } else {
    static_cast<void>(terms);
    const bool is_signed = args.k_type == quant::DType::kS8;
    size_t done = 0;
    if (k.width % 8 == 0) {  // whole panels of whole words: no row has an end to look for
      const Centering c = CenteringOf(is_signed, args.k_zero_point);
      done = k.count / 16 * 16;
      PackRowsAsColumns(
          done, d_steps,
          [&](size_t row, size_t step) HWY_ATTR {
            return hn::BitCast(Words(), Center(c, k.data + static_cast<int64_t>(row) * k.stride + step * 2));
          },
          out);
    }
    const auto load = [&](size_t row, size_t step) HWY_ATTR {
      return hn::BitCast(Words(), LoadCentered(k, row, step * 2, is_signed, args.k_zero_point));
    };
    PackRowsAsColumns(k16, d_steps, load, out, done);
  }
}

// Rows of V, or of a tile of it, as `v16` columns. k16: keys with padding.
template <class E>
HWY_INLINE void PackValues(const SdpaInt8Args& args, const HeadRows<uint8_t>& v, size_t k16, size_t k_steps, size_t v16,
                           uint8_t* out, int32_t* terms) {
  if constexpr (E::kPerWord == 4) {
    const Int8Forms f = FormsOf(args);
#if HWY_TARGET <= HWY_AVX3_DL
    const size_t done = PackWholeQuads(v, k_steps * 4, f.v_flip, out);
#else
    const size_t done = 0;
#endif
    PackQuads(v, k_steps * 4, v16, f.v_flip, out, done);
    if constexpr (!kAddsToOut<E>) {
      ColumnTerms<E>(out, v16, k_steps, static_cast<int32_t>(k16), f.p_zero, f.v_zero, terms);
    }
  } else {
    static_cast<void>(terms), static_cast<void>(k_steps);
    PackPairs(v, k16, v16, args.v_type == quant::DType::kS8, args.v_zero_point, out);
  }
}

#if HWY_TARGET <= HWY_AVX3_DL
// kR rows of `width` bytes as words; sums[r]: those of row r, in lanes.
template <size_t kR>
HWY_INLINE void FlipQueries(const uint8_t* q, int64_t stride, size_t width, uint8_t flip, uint8_t* out,
                            size_t out_stride, F16 (&sums)[kR]) {
  const hn::Full512<uint8_t> d64;
  const hn::Full512<int32_t> d32;
  const auto flips = hn::Set(d64, flip);
  const auto ones = hn::Set(hn::Full512<int8_t>(), int8_t{1});
  hn::Vec512<int32_t> total[kR];
  const auto each = [](auto f) HWY_ATTR {
    HWY_UNROLL(6)
    for (size_t r = 0; r < kR; ++r) f(r);
  };
  const auto put = [&](size_t r, size_t at, hn::Vec512<uint8_t> v) HWY_ATTR {
    hn::Store(v, d64, out + r * out_stride + at);
    total[r] = hn::SumOfMulQuadAccumulate(d32, v, ones, total[r]);
  };
  each([&](size_t r) HWY_ATTR { total[r] = hn::Zero(d32); });
  size_t at = 0;
  for (; at + 64 <= width; at += 64) {
    each([&](size_t r)
             HWY_ATTR { put(r, at, hn::Xor(hn::LoadU(d64, q + static_cast<int64_t>(r) * stride + at), flips)); });
  }
  if (at < width) {
    const auto inside = hn::FirstN(d64, width - at);
    each([&](size_t r) HWY_ATTR {
      const auto v = hn::MaskedLoad(inside, d64, q + static_cast<int64_t>(r) * stride + at);
      put(r, at, hn::IfThenElseZero(inside, hn::Xor(v, flips)));
    });
  }
  each([&](size_t r) HWY_ATTR { sums[r] = {hn::BitCast(F16D(), total[r])}; });
}
#endif

// A query row as words; *term = what the zero point of K contributes to it.
template <class E>
HWY_INLINE void PrepareQuery(const SdpaInt8Args& args, const Int8Forms& f, const uint8_t* q, const SdpaLayout& l,
                             uint8_t* out, int32_t* term) {
  const auto width = static_cast<size_t>(args.shape.head_size);
  const HeadRows<uint8_t> rows = {q, 0, 1, width};
  if constexpr (E::kPerWord == 4) {
#if HWY_TARGET <= HWY_AVX3_DL
    F16 sums[1];
    FlipQueries<1>(q, 0, width, f.q_flip, out, 0, sums);
    *term = -f.k_zero * hn::ReduceSum(hn::Full512<int32_t>(), hn::BitCast(hn::Full512<int32_t>(), sums[0].a));
#else
    const Bytes d8;
    auto sum = hn::Zero(hn::Full128<uint64_t>());
    for (size_t at = 0; at < width; at += 16) {
      const auto v = LoadBytes(rows, 0, at, f.q_flip);
      hn::Store(v, d8, out + at);
      sum = hn::Add(sum, hn::SumsOf8(v));
    }
    *term = -f.k_zero * static_cast<int32_t>(hn::ReduceSum(hn::Full128<uint64_t>(), sum));
#endif
    static_cast<void>(l);
    static_cast<void>(rows);
  } else {
    const bool is_signed = args.q_type == quant::DType::kS8;
    auto* words = reinterpret_cast<int16_t*>(out);
    size_t at = 0;
    if (width % 16 == 0) {  // no row has an end to look for
      const hn::Full256<int16_t> d16;
      const hn::Full128<uint8_t> d8;
      const auto zero = hn::Set(d16, static_cast<int16_t>(args.q_zero_point));
      for (; at < width; at += 16) {
        const auto bytes = hn::LoadU(d8, q + at);
        const auto wide =
            is_signed ? hn::PromoteTo(d16, hn::BitCast(hn::Full128<int8_t>(), bytes)) : hn::PromoteTo(d16, bytes);
        hn::Store(hn::Sub(wide, zero), d16, words + at);
      }
    }
    for (; at < l.d_steps * 2; at += 8) {
      hn::Store(LoadCentered(rows, 0, at, is_signed, args.q_zero_point), Shorts(), words + at);
    }
    *term = 0;
  }
}

// kR query rows.
template <class E, size_t kR>
HWY_INLINE void PrepareQueries(const SdpaInt8Args& args, const Int8Forms& f, const uint8_t* q, const SdpaLayout& l,
                               uint8_t* out, RowSlots<int32_t>& terms) {
  const int64_t stride = args.q_strides.row;
#if HWY_TARGET <= HWY_AVX3_DL
  if constexpr (E::kPerWord == 4) {
    F16 sums[kR];
    FlipQueries<kR>(q, stride, static_cast<size_t>(args.shape.head_size), f.q_flip, out, l.q_stride, sums);
    if (f.k_zero == 0) return;  // nobody reads the terms
    FoldRows<kR>(sums, AddIntOp(), terms);
    const hn::Full256<int32_t> d8;
    hn::Store(hn::Mul(hn::Load(d8, terms.at), hn::Set(d8, -f.k_zero)), d8, terms.at);
    return;
  }
#endif
  for (size_t r = 0; r < kR; ++r) {
    PrepareQuery<E>(args, f, q + static_cast<int64_t>(r) * stride, l, out + r * l.q_stride, &terms[r]);
  }
}

template <class E>
HWY_INLINE ProbQuant ProbQuantOf(const SdpaInt8Args& args) {
  const auto [lo, hi] = quant::RangeOf(args.p_type);
  const int32_t zero = FormsOf(args).p_zero;
  ProbQuant q{};
  q.p_scale = args.p_scale;
  q.p_reciprocal = 1.0f / args.p_scale;
  q.zero = zero;
  q.high = static_cast<int32_t>(hi) - args.p_zero_point;
  q.divide = !(args.p_scale >= 0x1p-22f && args.p_scale <= 0x1p22f);
  // A NaN quantizes to the lowest value, unless the guard makes it 0. (Rows that are masked wholly have no NaN: DivisorOf.)
  int32_t centered = args.guard == SdpaGuard::kNan ? 0 : static_cast<int32_t>(lo) - args.p_zero_point;
  if (args.prob_codes.exist()) {
    const RoundTrip trip =
        MakeRoundTrip(args.prob_codes.scale, args.prob_codes.zero_point, args.prob_codes.type, args.prob_codes.back());
    const float largest = trip.highest * trip.back;
    q.divide =
        q.divide || !(largest <= 1.00001f);  // beyond 1 codes may have to saturate, which the other form excludes
    if (args.guard != SdpaGuard::kNan) {
      centered = quant::QuantizeOne(trip.lowest * trip.back, args.p_scale, args.p_zero_point, static_cast<int32_t>(lo),
                                    static_cast<int32_t>(hi)) -
                 args.p_zero_point;
    }
  }
  q.nan = E::kPerWord == 4 ? centered + zero : centered;
  q.diffusion = args.p_diffused ? 256.0f * args.LargestCode() : 0.0f;
  return q;
}

// Exponentials to the words of the second product.
template <class E>
HWY_INLINE void QuantizeRow(const ProbQuant& quant, const float* e, size_t keys, size_t k16, float sum,
                            typename E::Prob* p, int32_t* row_sum) {
  if (sum == sum) {
    quant.divide ? QuantizeProbs<true>(quant, e, keys, sum, p, row_sum)
                 : QuantizeProbs<false>(quant, e, keys, sum, p, row_sum);
    return;
  }
  // Beyond the keys V is 0, and the column terms (ColumnTerms) count on the zero point there.
  const int32_t padding = E::kPerWord == 4 ? quant.zero : 0;
  for (size_t i = 0; i < k16; ++i) p[i] = static_cast<typename E::Prob>(i < keys ? quant.nan : padding);
  *row_sum = static_cast<int32_t>(keys) * quant.nan + static_cast<int32_t>(k16 - keys) * padding;
}

// The probabilities of one row, from the exponentials of the span; keys outside of it have probability 0.
template <class E>
HWY_INLINE void QuantizeSpan(const ProbQuant& quant, const ScoreRows& rows, size_t r, const Span& span, size_t k16,
                             float sum, uint8_t* p_row, int32_t* row_sum) {
  auto* p = reinterpret_cast<typename E::Prob*>(p_row);
  if (quant.diffusion != 0.0f) {
    Rest rest;
    *row_sum = DiffuseRow(quant, Part(rows.From(r), span.begin, span.end), sum, p + span.begin, rest);
    return;  // the zero point of the u8 form is 0
  }
  QuantizeRow<E>(quant, rows.Row(r) + span.begin, span.end - span.begin, span.padded - span.begin, sum, p + span.begin,
                 row_sum);
  if (E::kPerWord != 4 || quant.zero == 0) return;  // the second product leaves them out
  std::memset(p, quant.zero, span.begin);
  std::memset(p + span.padded, quant.zero, k16 - span.padded);
  *row_sum += quant.zero * static_cast<int32_t>(span.begin + k16 - span.padded);
}

HWY_INLINE int32_t SumOfWords(const int16_t* p, size_t n16) {
  const hn::Full256<int16_t> d16;
  const hn::Full256<int32_t> d32;
  const auto ones = hn::Set(d16, int16_t{1});
  auto sum = hn::Zero(d32);
  for (size_t i = 0; i < n16; i += 16) sum = hn::Add(sum, hn::WidenMulPairwiseAdd(d32, hn::Load(d16, p + i), ones));
  return hn::ReduceSum(d32, sum);
}

// The sum of a row's codes less their zero point, which is the lowest code (p_relative). row_sum: what QuantizeSpans gave.
template <class E>
HWY_INLINE int32_t SumOfCodes(const Span& span, const uint8_t* p, int32_t row_sum) {
  if constexpr (std::is_same_v<typename E::Prob, PairCode>) {
    const PairSums16 sums(row_sum);
    return sums.first + sums.second;
  } else if constexpr (E::kPerWord == 4) {
    return row_sum;  // the zero point of the u8 form is 0
  } else {
    return SumOfWords(reinterpret_cast<const int16_t*>(p) + span.begin, span.padded - span.begin);
  }
}

// Relative codes are those of exponentials: their sums count as 1. Rows without meaning stay so.
template <size_t kR>
HWY_INLINE void LeaveUndivided(RowSlots<float>& sum) {
  for (size_t r = 0; r < kR; ++r) sum[r] = sum[r] == sum[r] ? 1.0f : sum[r];
}

// Exponentials to probabilities that have been codes; their sums count as 1 then. Rows without meaning stay so.
template <size_t kR>
HWY_NOINLINE void RecodeProbs(const SdpaScoreCodes& codes, const ScoreRows& rows, RowSlots<float>& sum) {
  for (size_t r = 0; r < kR; ++r) {
    if (sum[r] == sum[r]) DividePass(rows, r, sum[r]), sum[r] = 1.0f;
  }
  CodesPass<kR>(rows, codes);
}

// The probabilities of kR rows of a span, at p + r * stride.
template <class E, size_t kR>
HWY_INLINE void QuantizeSpans(const ProbQuant& quant, const ScoreRows& rows, const Span& span, size_t k16,
                              const RowSlots<float>& sum, uint8_t* p, size_t stride, RowSlots<int32_t>& row_sums) {
  if constexpr (E::kPerWord == 4) {  // codes of a byte, and without VNNI pairs
    if (quant.diffusion != 0.0f) {
      DiffuseRows<typename E::Prob, kR>(quant, Part(rows, span.begin, span.end), sum, p + span.begin, stride, row_sums);
      return;
    }
    constexpr bool kPairs = std::is_same_v<typename E::Prob, PairCode>;
    if ((quant.zero == 0 || span.whole) && QuantizeRowsByInterval<kPairs, kR>(quant, Part(rows, span.begin, span.end),
                                                                              sum, p + span.begin, stride, row_sums)) {
      return;
    }
  }
  for (size_t r = 0; r < kR; ++r) {
    QuantizeSpan<E>(quant, rows, r, span, k16, sum[r], p + r * stride, &row_sums[r]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
