// int8 attention of few rows (decoding), the exact mode's bits: K and V are read once, where they lie, for all rows of all
// heads that share them. Products where they lie (sdpa_decode_direct-inl.h), keys without a probability left out; VNNI brings
// tiles of 64 keys of K, and of V for many rows, into panels in L1 (0.05 cycles a byte with AVX-512, against 0.2 that memory
// takes). Nothing is written but scores and probabilities.
#include <algorithm>
#include <cstring>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/kernels/sdpa/sdpa_window.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_decode_int8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_decode_direct-inl.h"
#include "octavo/kernels/sdpa/sdpa_decode_split-inl.h"
#include "octavo/kernels/sdpa/sdpa_int8-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_store-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Rows [first, first + count) of the group, counted head by head.
struct DecodeRows {
  const SdpaInt8Args& args;
  const internal::SdpaDecodeLayout& layout;
  uint8_t* scratch;  // of this thread
  uint8_t *scores, *probs;
  int32_t* sums;   // of the rows, layout.rows.v16 each
  int32_t* codes;  // the sums of the rows' codes: p_relative
  int64_t batch, kv_head, first, count;

  int64_t Head(int64_t i) const {
    return kv_head * (args.shape.heads / args.shape.kv_heads) + (first + i) / args.shape.q_len;
  }
  int64_t Row(int64_t i) const { return (first + i) % args.shape.q_len; }
  uint8_t* tile() const { return scratch + layout.tile_at; }
  ScoreRows ScoresOf(int64_t i) const {
    const size_t stride = layout.rows.score_stride;
    return {scores + static_cast<size_t>(i) * stride, stride, static_cast<size_t>(args.shape.k_len)};
  }
  Block<SdpaInt8Args> BlockOf(int64_t i) const { return {args, layout.rows, nullptr, scratch, batch, Head(i), Row(i)}; }
};

HWY_INLINE HeadRows<uint8_t> TileRowsOf(HeadRows<uint8_t> rows, size_t first) {
  rows.data += static_cast<int64_t>(first) * rows.stride;
  rows.count = HWY_MIN(rows.count - first, internal::kDecodeKeys);
  return rows;
}

template <class E>
void DecodeScores(const DecodeRows& d, const Span& span) {
  const SdpaInt8Args& args = d.args;
  const SdpaShape& s = args.shape;
  const SdpaLayout &l = d.layout.rows, &t = d.layout.tile;
  alignas(64) int32_t terms[kSdpaDecodeRows];
  for (int64_t i = 0; i < d.count; ++i) {
    const auto* q = static_cast<const uint8_t*>(args.q) + OffsetOf(args.q_strides, d.batch, d.Head(i), d.Row(i));
    PrepareQuery<E>(args, FormsOf(args), q, l, d.scratch + l.q_at + static_cast<size_t>(i) * l.q_stride, &terms[i]);
  }
  const auto k = RowsOf<uint8_t>(args.k, args.k_strides, d.batch, d.kv_head, s.k_len, s.head_size);
  auto* columns = reinterpret_cast<int32_t*>(d.tile() + t.k_columns_at);
  for (size_t key = span.begin; key < span.padded; key += internal::kDecodeKeys) {
    const size_t width = HWY_MIN(span.padded - key, internal::kDecodeKeys);
    PackKeys<E>(args, TileRowsOf(k, key), width, l.d_steps, d.tile(), columns);
    ForBlocks(0, d.count, [&](auto rows, int64_t i) HWY_ATTR {
      const auto at = static_cast<size_t>(i);
      auto* out = reinterpret_cast<int32_t*>(d.scores + at * l.score_stride) + key;
      const TileArgs<int32_t> products = {d.scratch + l.q_at + at * l.q_stride,
                                          l.q_stride,
                                          l.d_steps,
                                          l.d_steps * 64,
                                          out,
                                          l.score_stride / 4,
                                          FormsOf(args).k_zero == 0 ? nullptr : terms + i};
      TileRows<E, decltype(rows)::value>(products, d.tile(), columns, width / 16);
    });
  }
}

// f(rows as a constant) for 4, 2 or 1 of the rows from `first` on, and what is left.
template <size_t kMost, class F>
HWY_INLINE void ForFewRows(int64_t count, F f) {
  int64_t row = 0;
  if constexpr (kMost >= 4) {
    for (; row + 4 <= count; row += 4) f(std::integral_constant<size_t, 4>(), static_cast<size_t>(row));
  }
  for (; row + 2 <= count; row += 2) f(std::integral_constant<size_t, 2>(), static_cast<size_t>(row));
  if (row < count) f(std::integral_constant<size_t, 1>(), static_cast<size_t>(row));
}

template <bool kSigned>
void DirectScores(const DecodeRows& d, const Span& span) {
  const SdpaInt8Args& args = d.args;
  const SdpaShape& s = args.shape;
  const SdpaLayout& l = d.layout.rows;
  const auto width = static_cast<size_t>(s.head_size);
  const int32_t zero = args.k_zero_point + (kSigned ? 128 : 0);
  int32_t terms[kSdpaDecodeRows];
  for (int64_t i = 0; i < d.count; ++i) {
    const auto* q = static_cast<const uint8_t*>(args.q) + OffsetOf(args.q_strides, d.batch, d.Head(i), d.Row(i));
    auto* out = reinterpret_cast<int16_t*>(d.scratch + l.q_at + static_cast<size_t>(i) * l.q_stride);
    terms[i] = -zero * DirectQuery(q, width, args.q_type == quant::DType::kS8, args.q_zero_point, out);
  }
  const auto k = RowsOf<uint8_t>(args.k, args.k_strides, d.batch, d.kv_head, s.k_len, s.head_size);
  for (size_t key = span.begin; key < span.padded; key += internal::kDecodeKeys) {
    const DirectBlock block = BlockAt(k, key, d.tile());
    const size_t keys = HWY_MIN(span.padded - key, internal::kDecodeKeys);
    ForFewRows<4>(d.count, [&](auto rows, size_t i) HWY_ATTR {
      auto* out = reinterpret_cast<int32_t*>(d.scores + i * l.score_stride) + key;
      const DirectRows tile = {d.scratch + l.q_at + i * l.q_stride, l.q_stride, out, l.score_stride / 4};
      KeyTile<decltype(rows)::value, kSigned>(tile, terms + i, block, keys, width);
    });
  }
}

// A probability of 0 is not the word 0: keys outside the span are multiplied with it.
template <class E>
bool ZeroIsAnotherWord(const ProbQuant& quant) {
  return E::kPerWord == 4 && quant.zero != 0;
}

// What the zero point of V adds to a row of probabilities; row_sum: VNNI only.
template <class E>
int32_t ValueTerm(const DecodeRows& d, int64_t i, const Span& span, int32_t row_sum) {
  if constexpr (E::kPerWord == 4) return static_cast<int32_t>(-static_cast<int64_t>(FormsOf(d.args).v_zero) * row_sum);
  const int32_t zero = d.args.v_zero_point + (d.args.v_type == quant::DType::kS8 ? 128 : 0);
  const auto* p = reinterpret_cast<const int16_t*>(d.probs + static_cast<size_t>(i) * d.layout.rows.p_stride);
  return static_cast<int32_t>(-static_cast<int64_t>(zero) * SumOfWords(p + span.begin, span.padded - span.begin));
}

// From the scores of one row to its words of P; false: a hidden key counts, so all keys are needed.
template <class E>
bool DecodeProbs(const DecodeRows& d, const ProbQuant& quant, const Span& span, int64_t i, int32_t* term) {
  const SdpaInt8Args& args = d.args;
  const SdpaLayout& l = d.layout.rows;
  const ScoreRows row = d.ScoresOf(i);
  RowSlots<float> sum;
  if (!Softmax<1, true>(d.BlockOf(i), row, args.q_scale * args.k_scale, span, sum)) return false;
  int32_t row_sum = 0;
  uint8_t* p = d.probs + static_cast<size_t>(i) * l.p_stride;
  if (args.p_relative) LeaveUndivided<1>(sum);
  QuantizeSpan<E>(quant, row, 0, span, l.k16, sum[0], p, &row_sum);
  if (args.p_relative) d.codes[i] = SumOfCodes<E>(span, p, row_sum);
  *term = ValueTerm<E>(d, i, span, row_sum);
  return true;
}

template <class E>
void ScoresOf(const DecodeRows& d, const Span& span) {
  if constexpr (E::kPerWord == 4) {
    DecodeScores<E>(d, span);
  } else {
    d.args.k_type == quant::DType::kS8 ? DirectScores<true>(d, span) : DirectScores<false>(d, span);
  }
}

// sums += P . V for the `k16` keys of a tile from `key` on, packed.
template <class E>
void PackedValues(const DecodeRows& d, const HeadRows<uint8_t>& v, size_t key, size_t k16) {
  const SdpaLayout &l = d.layout.rows, &t = d.layout.tile;
  auto* columns = reinterpret_cast<int32_t*>(d.tile() + t.v_columns_at);
  auto* part = reinterpret_cast<int32_t*>(d.scratch + d.layout.part_at);
  const size_t steps = k16 / E::kPerWord;
  PackValues<E>(d.args, TileRowsOf(v, key), k16, steps, l.v16, d.tile() + t.v_at, columns);
  ForBlocks(0, d.count, [&](auto rows, int64_t i) HWY_ATTR {
    const auto at = static_cast<size_t>(i);
    const uint8_t* p = d.probs + at * l.p_stride + key / E::kPerWord * 4;
    const TileArgs<int32_t> values = {p, l.p_stride, steps, steps * 64, part + at * l.v16, l.v16, nullptr};
    TileRows<E, decltype(rows)::value>(values, d.tile() + t.v_at, columns, l.v16 / 16);
  });
  const S32D d32;
  for (size_t c = 0; c < static_cast<size_t>(d.count) * l.v16; c += kF16Lanes) {
    hn::Store(hn::Add(hn::Load(d32, d.sums + c), hn::Load(d32, part + c)), d32, d.sums + c);
  }
}

// The same for the fours of keys in the list, where they lie.
template <class E, bool kSigned>
void DirectValues(const DecodeRows& d, const HeadRows<uint8_t>& v, size_t key, const uint8_t* fours, size_t count) {
  constexpr size_t kMost = HWY_TARGET == HWY_AVX2 ? 2 : 4;  // 4 sums a row
  const SdpaLayout& l = d.layout.rows;
  const DirectBlock block = BlockAt(v, key, d.tile());
  const uint8_t* p = d.probs + key * sizeof(typename E::Prob);
  for (size_t c = 0; c < l.v16; c += kDirectBytes) {
    ForFewRows<kMost>(d.count, [&](auto rows, size_t i) HWY_ATTR {
      const DirectRows tile = {p + i * l.p_stride, l.p_stride, d.sums + i * l.v16 + c, l.v16};
      ValueFours<E, decltype(rows)::value, kSigned>(tile, fours, count, block.data + c, block.stride);
    });
  }
}

// terms: what the zero point of V adds to each row. VNNI packs where more than two rows meet more than half of the keys.
template <class E>
void ValuesOf(const DecodeRows& d, const ProbQuant& quant, const Span& span, const int32_t* terms) {
  const SdpaInt8Args& args = d.args;
  const SdpaShape& s = args.shape;
  const SdpaLayout& l = d.layout.rows;
  const auto v = RowsOf<uint8_t>(args.v, args.v_strides, d.batch, d.kv_head, s.k_len, s.v_head_size);
  for (size_t i = 0; i < static_cast<size_t>(d.count); ++i) std::fill_n(d.sums + i * l.v16, l.v16, terms[i]);
  for (size_t key = span.begin; key < span.padded; key += internal::kDecodeKeys) {
    const size_t keys = HWY_MIN(span.padded - key, internal::kDecodeKeys);
    uint8_t fours[internal::kDecodeKeys / 4];
    const uint8_t* p = d.probs + key * sizeof(typename E::Prob);
    const size_t count = FoursInUse<E>(p, l.p_stride, static_cast<size_t>(d.count), keys, fours);
    if constexpr (E::kPerWord == 4) {
      if (ZeroIsAnotherWord<E>(quant) || (d.count > 2 && count > keys / 8)) {
        PackedValues<E>(d, v, key, keys);
        continue;
      }
    }
    if (count == 0) continue;
    args.v_type == quant::DType::kS8 ? DirectValues<E, true>(d, v, key, fours, count)
                                     : DirectValues<E, false>(d, v, key, fours, count);
  }
}

template <class E>
bool DecodeSpan(const DecodeRows& d, const ProbQuant& quant, const Span& span) {
  alignas(64) int32_t terms[kSdpaDecodeRows] = {};
  ScoresOf<E>(d, span);
  for (int64_t i = 0; i < d.count; ++i) {
    if (!DecodeProbs<E>(d, quant, span, i, &terms[i])) return false;
  }
  const SdpaShape& s = d.args.shape;
  ValuesOf<E>(d, quant, ZeroIsAnotherWord<E>(quant) ? MakeSpan(s, {0, s.k_len + 63}) : span, terms);
  return true;
}

inline void StoreRows(const DecodeRows& d) {
  const SdpaInt8Args& args = d.args;
  const Requant requant =
      args.o_type == quant::DType::kF32 ? Requant{} : MakeRequant(args.o_scale, args.o_zero_point, args.o_type);
  for (int64_t i = 0; i < d.count; ++i) {
    StoreOutput(args, requant, d.sums + static_cast<size_t>(i) * d.layout.rows.v16, d.codes[i],
                OffsetOf(args.o_strides, d.batch, d.Head(i), d.Row(i)));
  }
}

template <class E>
void Decode(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch) {
  const SdpaShape& s = args.shape;
  const internal::SdpaDecodeLayout l = internal::MakeSdpaDecodeLayout(s, E::kPerWord);
  const ProbQuant quant = ProbQuantOf<E>(args);
  const int64_t rows = s.heads / s.kv_heads * s.q_len;
  auto* own = static_cast<uint8_t*>(scratch);
  int32_t codes[kSdpaDecodeRows] = {};
  for (int64_t first = 0; first < rows; first += kSdpaDecodeRows) {
    const DecodeRows d = {args,
                          l,
                          own,
                          own + l.rows.scores_at,
                          own + l.rows.p_at,
                          reinterpret_cast<int32_t*>(own + l.rows.out_at),
                          codes,
                          batch,
                          kv_head,
                          first,
                          std::min(rows - first, kSdpaDecodeRows)};
    if (!DecodeSpan<E>(d, quant, MakeSpan(s, internal::SpanOfGroup(args, batch, kv_head)))) {
      DecodeSpan<E>(d, quant, MakeSpan(s, {0, s.k_len + 63}));
    }
    StoreRows(d);
  }
}

template <class E>
void SplitScores(const DecodeRows& d, const Split& split, const ProbQuant& quant) {
  const SdpaInt8Args& args = d.args;
  const SdpaShape& s = args.shape;
  SplitHead& head = split.Head(split.at.part);
  const internal::KeyRange all = {0, s.k_len + 63};
  head.span = MakeSpan(s, ZeroIsAnotherWord<E>(quant) ? all : internal::SpanOfGroup(args, d.batch, d.kv_head));
  const Span own = split.Own();
  if (own.begin < own.end) ScoresOf<E>(d, own);
  for (int64_t i = 0; i < d.count; ++i) {
    head.max()[i] = ScoresOfPart<true>(d.BlockOf(i), d.ScoresOf(i), args.q_scale * args.k_scale, own);
  }
}

template <class E>
void SplitValues(const DecodeRows& d, const Split& split, const ProbQuant& quant) {
  SplitHead& head = split.Head(split.at.part);
  const Span own = split.Own();
  alignas(64) int32_t terms[kSdpaDecodeRows] = {};
  head.gone = true;
  for (int64_t i = 0; i < d.count; ++i) {
    const ScoreRows row = d.ScoresOf(i);
    const auto at = static_cast<size_t>(i);
    const float sum = SumOfRow(row, head.span);
    head.gone &= NoOtherKeyCounts(d.args, head.span, split.Max(at), sum);
    int32_t row_sum = 0;
    uint8_t* row_p = d.probs + at * d.layout.rows.p_stride;
    RowSlots<float> divisor = {{DivisorOf(d.args.guard, sum)}};
    if (d.args.p_relative) LeaveUndivided<1>(divisor);
    auto* p = reinterpret_cast<typename E::Prob*>(row_p) + own.begin;
    if (quant.diffusion != 0.0f) {
      Rest rest;
      rest.After(quant, row.Row(0), head.span.begin, HWY_MIN(own.begin, own.end));
      row_sum = DiffuseRow(quant, Part(row, own.begin, own.end), divisor[0], p, rest);
    } else {
      QuantizeRow<E>(quant, row.Row(0) + own.begin, own.end - own.begin, own.padded - own.begin, divisor[0], p,
                     &row_sum);
    }
    d.codes[i] = d.args.p_relative ? SumOfCodes<E>(own, row_p, row_sum) : 0;
    terms[i] = ValueTerm<E>(d, i, own, row_sum);
  }
  std::memset(d.sums, 0, static_cast<size_t>(d.count) * d.layout.rows.out_stride);
  if (own.begin < own.end && head.gone) ValuesOf<E>(d, quant, own, terms);
}

template <class E>
void SplitKvStep(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, const SplitKvPart& part, void* shared,
                 void* scratch) {
  const SdpaShape& s = args.shape;
  const internal::SdpaDecodeLayout l = internal::MakeSdpaDecodeLayout(s, E::kPerWord);
  const int64_t count = s.heads / s.kv_heads * s.q_len;
  const auto sl = internal::MakeSdpaSplitLayout(l.rows, static_cast<size_t>(count), part.parts, true);
  auto* base = static_cast<uint8_t*>(shared);
  const Split split = {sl, base, part};
  const auto sums_of = [&](int64_t p) {
    return reinterpret_cast<int32_t*>(base + sl.sums_at + static_cast<size_t>(p) * sl.sums_stride);
  };
  const DecodeRows d = {args,
                        l,
                        static_cast<uint8_t*>(scratch),
                        base + sl.scores_at,
                        base + sl.p_at,
                        sums_of(part.part),
                        split.Head(part.part).codes(count),
                        batch,
                        kv_head,
                        0,
                        count};
  if (part.step == 0) return SplitScores<E>(d, split, ProbQuantOf<E>(args));
  if (part.step == 1) return ExpOfPart(split, args.guard, d.ScoresOf(0), static_cast<size_t>(count));
  if (part.step == 2) return SplitValues<E>(d, split, ProbQuantOf<E>(args));
  if (part.part != 0) return;
  if (!split.Head(0).gone) return Decode<E>(args, batch, kv_head, scratch);
  const size_t n = static_cast<size_t>(count) * l.rows.v16;
  for (int64_t p = 1; p < part.parts; ++p) {
    for (int64_t i = 0; i < count; ++i) d.codes[i] += split.Head(p).codes(count)[i];
    for (size_t c = 0; c < n; ++c) {
      d.sums[c] = static_cast<int32_t>(static_cast<uint32_t>(d.sums[c]) + static_cast<uint32_t>(sums_of(p)[c]));
    }
  }
  StoreRows(d);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

void DecodeReference(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    internal::SdpaReference(args, batch, head, 0, args.shape.q_len, static_cast<float*>(scratch));
  }
}

void PartReference(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, const SplitKvPart& part, void*,
                   void* scratch) {
  if (part.step == 0 && part.part == 0) DecodeReference(args, batch, kv_head, scratch);
}

struct Form {
  std::string_view name;
  void (*decode)(const SdpaInt8Args&, int64_t, int64_t, void*);
  void (*part)(const SdpaInt8Args&, int64_t, int64_t, const SplitKvPart&, void*, void*);
  size_t per_word;  // values in a word; 0: nothing is laid out, one row of scores is all
};
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", &DecodeReference, &PartReference, 0},
    .avx2 = {"avx2", &N_AVX2::Decode<N_AVX2::S16Engine>, &N_AVX2::SplitKvStep<N_AVX2::S16Engine>, 2},
    .avx512 = {"avx512", &N_AVX3::Decode<N_AVX3::S16Engine>, &N_AVX3::SplitKvStep<N_AVX3::S16Engine>, 2},
    .avx512vnni = {"avx512vnni", &N_AVX3_DL::Decode<N_AVX3_DL::VnniEngine>,
                   &N_AVX3_DL::SplitKvStep<N_AVX3_DL::VnniEngine>, 4},
    .avxvnni = Form{"avxvnni", &N_AVX2::Decode<N_AVX2::VnniEngine>, &N_AVX2::SplitKvStep<N_AVX2::VnniEngine>, 4}};

}  // namespace

std::string_view internal::SdpaDecodeInt8Form(Arch arch) { return kForms[arch].name; }

size_t SdpaDecodeScratchBytes(Arch arch, const SdpaInt8Args& args) {
  const size_t per_word = kForms[arch].per_word;
  return per_word == 0 ? static_cast<size_t>(args.shape.k_len) * sizeof(float)
                       : internal::MakeSdpaDecodeLayout(args.shape, per_word).bytes;
}

void SdpaDecode(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch) {
  kForms[arch].decode(args, batch, kv_head, scratch);
}

size_t SdpaSplitKvBytes(Arch arch, const SdpaInt8Args& args, int64_t parts) {
  const size_t per_word = kForms[arch].per_word;
  if (per_word == 0) return 0;
  const SdpaShape& s = args.shape;
  const auto rows = static_cast<size_t>(s.heads / s.kv_heads * s.q_len);
  return internal::MakeSdpaSplitLayout(internal::MakeSdpaDecodeLayout(s, per_word).rows, rows, parts, true).bytes;
}

void SdpaSplitKv(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, const SplitKvPart& part,
                 void* shared, void* scratch) {
  kForms[arch].part(args, batch, kv_head, part, shared, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
