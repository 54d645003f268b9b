// Few query rows against many keys (decoding), in float: all heads that share a K and V at once, so that both come from memory
// once. K is packed by 64 keys, which stay in L1 until every row has met them; V is read where it lies, 64 keys at a time for
// the same reason. Sums run over the keys in the order of the other forms, hence equal bits. Rows of codes become floats there, 16 keys of K
// and 64 of V at a time.
#include <algorithm>
#include <cstring>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/kernels/sdpa/sdpa_window.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_decode_f32_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_coded-inl.h"
#include "octavo/kernels/sdpa/sdpa_decode_split-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"

#ifndef OCTAVO_KERNELS_SDPA_DECODE_LAYOUT
#define OCTAVO_KERNELS_SDPA_DECODE_LAYOUT
namespace octavo::kernels {
namespace {

// Scratch in bytes: 64 keys of K, the scores of all rows, their sums over V; of codes also words of 16 keys of K, and 64 keys of V; of 4
// bits the bytes of these keys.
struct DecodeLayout {
  internal::SdpaLayout of;
  size_t rows, scores_at, sums_at, words_at, values_at, codes_at, bytes;
};
DecodeLayout MakeDecodeLayout(const SdpaFloatArgs& args) {
  const SdpaShape& s = args.shape;
  DecodeLayout l{};
  l.of = internal::MakeSdpaLayout(s, 1);
  l.rows = static_cast<size_t>(s.heads / s.kv_heads * s.q_len);
  l.scores_at = internal::RoundUp(l.of.d_steps * 256, 64);
  l.sums_at = l.scores_at + l.rows * l.of.score_stride;
  l.words_at = internal::RoundUp(l.sums_at + l.rows * l.of.out_stride, 64);
  l.values_at = l.words_at + (args.k_bits > 0 ? internal::RoundUp(l.of.d_steps, 16) * 16 : 0);
  l.codes_at = l.values_at + (args.v_bits > 0 ? 64 * l.of.v16 * sizeof(float) : 0);
  const size_t k_codes = args.k_bits == 4 ? 16 * quant::CodedRowBytes(s.head_size, 8) : 0;
  const size_t v_codes = args.v_bits == 4 ? 64 * quant::CodedRowBytes(s.v_head_size, 8) : 0;
  l.bytes = internal::RoundUp(l.codes_at + std::max(k_codes, v_codes), 64);
  return l;
}

}  // namespace
}  // namespace octavo::kernels
#endif

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// The rows of a group: query row `row` of head `head` is row (head - first head) * q_len + row of the scratch.
struct Group {
  const SdpaFloatArgs& args;
  const DecodeLayout& layout;
  int64_t batch, kv_head;
  uint8_t* scratch;  // of this thread
  uint8_t* scores;

  HWY_INLINE int64_t heads() const { return args.shape.heads / args.shape.kv_heads; }
  HWY_INLINE uint8_t* Scores(size_t row) const { return scores + row * layout.of.score_stride; }
  HWY_INLINE ScoreRows Rows(size_t row) const {
    return {Scores(row), layout.of.score_stride, static_cast<size_t>(args.shape.k_len)};
  }
  HWY_INLINE int64_t HeadOf(size_t row) const {
    return kv_head * heads() + static_cast<int64_t>(row) / args.shape.q_len;
  }
  HWY_INLINE int64_t RowOf(size_t row) const { return static_cast<int64_t>(row) % args.shape.q_len; }
  HWY_INLINE float* Sums(size_t row) const {
    return reinterpret_cast<float*>(scratch + layout.sums_at) + row * layout.of.v16;
  }
};

// Rows of an operand from key `at` on that lie one behind the other.
struct Keys {
  const float* data;
  int64_t stride;
  size_t count;

  HWY_INLINE HeadRows<float> Floats(int64_t width) const { return {data, stride, count, static_cast<size_t>(width)}; }
  // Those of `most` keys at the most; `scratch` for codes of 4 bits.
  HWY_INLINE CodedRows Codes(int64_t width, int bits, size_t most, uint8_t* scratch) const {
    const CodedRows rows = {reinterpret_cast<const uint8_t*>(data), stride, count, static_cast<size_t>(width)};
    return bits == 4 ? WithBytes(rows, HWY_MIN(count, most), scratch) : rows;
  }
};
constexpr size_t kPlaceKeys = static_cast<size_t>(kSdpaPlaceKeys);
// How many keys from `at` on lie one behind the other for sure.
HWY_INLINE size_t KeysInPlace(size_t at) { return kPlaceKeys - at % kPlaceKeys; }

HWY_INLINE Keys KeysFrom(const Group& g, const SdpaPlace& whole, const SdpaPlace* places, bool coded, size_t at) {
  const SdpaPlace& place = places == nullptr ? whole : places[at / kPlaceKeys];
  const size_t row = places == nullptr ? at : at % kPlaceKeys, rest = static_cast<size_t>(g.args.shape.k_len) - at;
  const int64_t offset = OffsetOf(place.strides, g.batch, g.kv_head, static_cast<int64_t>(row));
  const auto* bytes =
      reinterpret_cast<const uint8_t*>(place.data) + offset * static_cast<int64_t>(coded ? 1 : sizeof(float));
  return {reinterpret_cast<const float*>(bytes), place.strides.row,
          places == nullptr ? rest : HWY_MIN(rest, KeysInPlace(at))};
}

// f(number of rows as a constant, first head of the group, first query row, `of_heads`): rows that follow each other at one
// stride. One query row a head: the rows are the heads.
template <class F>
HWY_INLINE void ForRuns(const Group& g, bool of_heads, F f) {
  if (of_heads) return ForBlocks(0, g.heads(), [&](auto count, int64_t head) HWY_ATTR { f(count, head, int64_t{0}); });
  for (int64_t head = 0; head < g.heads(); ++head) {
    ForBlocks(0, g.args.shape.q_len, [&](auto count, int64_t row) HWY_ATTR { f(count, head, row); });
  }
}

// Keys [at, at + columns) of the group's head, columns a multiple of 16, as panels.
inline void PackKeys(const Group& g, size_t at, size_t columns) {
  const SdpaFloatArgs& args = g.args;
  const size_t steps = g.layout.of.d_steps;
  for (size_t i = 0; i < columns; i += 16) {
    uint8_t* out = g.scratch + i * steps * sizeof(float);
    const Keys keys = KeysFrom(g, {args.k, args.k_strides}, args.k_places, args.k_bits > 0, at + i);
    if (args.k_bits > 0) {
      const CodedRows codes = keys.Codes(args.shape.head_size, args.k_bits, 16, g.scratch + g.layout.codes_at);
      PackCodedPanel(codes, 0, g.scratch + g.layout.words_at, reinterpret_cast<float*>(out));
      continue;
    }
    const HeadRows<float> part = keys.Floats(args.shape.head_size);
    PackRowsAsColumns(16, steps, [&](size_t row, size_t step) HWY_ATTR { return LoadFloats(part, row, step); }, out);
  }
}

inline void GroupScores(const Group& g, const Span& span) {
  const SdpaFloatArgs& args = g.args;
  const SdpaShape& s = args.shape;
  const internal::SdpaLayout& l = g.layout.of;
  const bool of_heads = s.q_len == 1;
  const auto stride = static_cast<size_t>(of_heads ? args.q_strides.head : args.q_strides.row) * sizeof(float);
  for (size_t at = span.begin; at < span.padded; at += 64) {
    const size_t columns = HWY_MIN(span.padded - at, size_t{64});
    PackKeys(g, at, columns);
    ForRuns(g, of_heads, [&](auto count, int64_t head, int64_t row) HWY_ATTR {
      const float* q = args.q + OffsetOf(args.q_strides, g.batch, g.kv_head * g.heads() + head, row);
      auto* out = reinterpret_cast<float*>(g.Scores(static_cast<size_t>(head * s.q_len + row))) + at;
      const TileArgs<float> tile = {
          reinterpret_cast<const uint8_t*>(q), stride, l.d_steps, l.d_steps * 64, out, l.score_stride / 4, nullptr};
      TileRows<FloatEngine, decltype(count)::value>(tile, g.scratch, nullptr, columns / 16);
    });
  }
}

HWY_INLINE void Divide(const ScoreRows& rows, size_t r, float sum, SdpaGuard guard) {
  if (sum != sum && guard == SdpaGuard::kNan) {
    std::memset(rows.Row(r), 0, internal::RoundUp(rows.keys, 16) * sizeof(float));
  } else {
    DividePass(rows, r, sum);
  }
}

// Scores to probabilities. False: a key outside the span would not have been 0.
inline bool GroupSoftmax(const Group& g, const Span& span) {
  const SdpaFloatArgs& args = g.args;
  const SdpaShape& s = args.shape;
  const SdpaVisibility& see = args.visibility;
  // Heads are one block where nothing tells them apart.
  const bool of_heads = s.q_len == 1 && see.alibi == nullptr && !internal::HasWindow(see.window) &&
                        (args.mask.data == nullptr || (args.mask.head == 0 && args.mask.row == 0)) &&
                        (see.keep.data == nullptr || (see.keep.head == 0 && see.keep.row == 0));
  bool done = true;
  ForRuns(g, of_heads, [&](auto count, int64_t head, int64_t row) HWY_ATTR {
    constexpr size_t kR = decltype(count)::value;
    const ScoreRows rows = g.Rows(static_cast<size_t>(head * s.q_len + row));
    const Block<SdpaFloatArgs> block = {args, g.layout.of, nullptr, g.scratch, g.batch, g.kv_head * g.heads() + head,
                                        row};
    RowSlots<float> sum;
    if (!Softmax<kR, false>(block, rows, 1.0f, span, sum)) done = false;
    const ScoreRows part = Part(rows, span.begin, span.end);
    for (size_t r = 0; r < kR; ++r) Divide(part, r, sum[r], args.guard);
  });
  return done;
}

// sums[r][16 kC columns] += p[r][keys] . v for kR rows. Named by template, so that every loop is unrolled.
template <size_t kR, size_t kC>
HWY_NOINLINE void ValueTile(const float* p, size_t p_stride, const float* v, int64_t v_stride, size_t keys, size_t last,
                            float* sums, size_t sums_stride) {
  F16 acc[kR][kC];
  for (size_t r = 0; r < kR; ++r) {
    for (size_t c = 0; c < kC; ++c) acc[r][c] = Load16(sums + r * sums_stride + 16 * c);
  }
  for (size_t j = 0; j < keys; ++j, v += v_stride) {
    F16 columns[kC];
    for (size_t c = 0; c + 1 < kC; ++c) columns[c] = Load16(v + 16 * c);
    columns[kC - 1] = last == 16 ? Load16(v + 16 * (kC - 1)) : LoadN16(v + 16 * (kC - 1), last);
    for (size_t r = 0; r < kR; ++r) {
      const F16 x = Set16(p[r * p_stride + j]);
      for (size_t c = 0; c < kC; ++c) acc[r][c] = MulAdd16(x, columns[c], acc[r][c]);
    }
  }
  for (size_t r = 0; r < kR; ++r) {
    for (size_t c = 0; c < kC; ++c) Store16(acc[r][c], sums + r * sums_stride + 16 * c);
  }
}

// Rows of the group and columns of V.
struct Piece {
  size_t first_row, end_row, begin, end;
};

template <size_t kR>
HWY_INLINE void ValueRows(const Group& g, size_t first, const HeadRows<float>& v, const Piece& of, size_t at,
                          size_t keys) {
  constexpr size_t kC = kF16Lanes == 16 ? 4 : 1;  // 16 of 32 zmm, 8 of 16 ymm
  const size_t p_stride = g.layout.of.score_stride / sizeof(float), v16 = g.layout.of.v16;
  const float* p = reinterpret_cast<const float*>(g.Scores(first)) + at;
  size_t c = of.begin;
  for (; c + 16 * kC <= of.end; c += 16 * kC) {
    ValueTile<kR, kC>(p, p_stride, v.data + c, v.stride, keys, 16, g.Sums(first) + c, v16);
  }
  if constexpr (kC == 4) {
    if (c + 32 <= of.end) {
      ValueTile<kR, 2>(p, p_stride, v.data + c, v.stride, keys, 16, g.Sums(first) + c, v16);
      c += 32;
    }
  }
  for (; c < of.end; c += 16) {
    ValueTile<kR, 1>(p, p_stride, v.data + c, v.stride, keys, HWY_MIN(of.end - c, size_t{16}), g.Sums(first) + c, v16);
  }
}

// The sums of a piece, and its part of the output.
inline void GroupValues(const Group& g, const Span& span, const Piece& of) {
  const SdpaFloatArgs& args = g.args;
  const SdpaShape& s = args.shape;
  auto* values = reinterpret_cast<float*>(g.scratch + g.layout.values_at);
  std::memset(g.Sums(of.first_row), 0, (of.end_row - of.first_row) * g.layout.of.out_stride);
  for (size_t at = span.begin, keys = 0; at < span.end; at += keys) {
    keys = HWY_MIN(span.end - at, KeysInPlace(at));
    const Keys rows = KeysFrom(g, {args.v, args.v_strides}, args.v_places, args.v_bits > 0, at);
    HeadRows<float> v = rows.Floats(s.v_head_size);
    if (args.v_bits > 0) {
      const CodedRows codes = rows.Codes(s.v_head_size, args.v_bits, keys, g.scratch + g.layout.codes_at);
      UnpackCodedRows(codes, 0, keys, of.begin, of.end, values, g.layout.of.v16);
      v.data = values, v.stride = static_cast<int64_t>(g.layout.of.v16);
    }
    size_t row = of.first_row;
    for (; row + 4 <= of.end_row; row += 4) ValueRows<4>(g, row, v, of, at, keys);
    for (; row < of.end_row; ++row) ValueRows<1>(g, row, v, of, at, keys);
  }
  for (size_t r = of.first_row; r < of.end_row; ++r) {
    float* o = args.o + OffsetOf(args.o_strides, g.batch, g.HeadOf(r), g.RowOf(r));
    std::memcpy(o + of.begin, g.Sums(r) + of.begin, (of.end - of.begin) * sizeof(float));
    if (!internal::Hides(args.visibility)) continue;
    for (size_t c = of.begin; c < of.end; ++c) o[c] = o[c] + 0.0f;  // -0 becomes 0: sdpa.h
  }
}

void DecodeGroup(const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* scratch) {
  const SdpaShape& s = args.shape;
  const DecodeLayout layout = MakeDecodeLayout(args);
  auto* own = static_cast<uint8_t*>(scratch);
  const Group g = {args, layout, batch, kv_head, own, own + layout.scores_at};
  Span span = MakeSpan(s, internal::SpanOfGroup(args, batch, kv_head));
  GroupScores(g, span);
  if (!GroupSoftmax(g, span)) {
    span = MakeSpan(s, {0, s.k_len + 63});
    GroupScores(g, span);
    GroupSoftmax(g, span);
  }
  GroupValues(g, span, {0, layout.rows, 0, static_cast<size_t>(s.v_head_size)});
}

inline void SplitScores(const Group& g, const Split& split) {
  SplitHead& head = split.Head(split.at.part);
  head.span = MakeSpan(g.args.shape, internal::SpanOfGroup(g.args, g.batch, g.kv_head));
  const Span own = split.Own();
  if (own.begin < own.end) GroupScores(g, own);
  for (size_t r = 0; r < g.layout.rows; ++r) {
    const Block<SdpaFloatArgs> block = {g.args, g.layout.of, nullptr, g.scratch, g.batch, g.HeadOf(r), g.RowOf(r)};
    head.max()[r] = ScoresOfPart<false>(block, g.Rows(r), 1.0f, own);
  }
}

// The sums over V run along the keys, so parts split the rows, by four, and then the columns, by sixteen.
inline Piece PieceOf(const Group& g, const SplitKvPart& at) {
  const size_t fours = (g.layout.rows + 3) / 4, units = g.layout.of.v16 / 16;
  const auto width = static_cast<size_t>(g.args.shape.v_head_size);
  const auto part = static_cast<size_t>(at.part), parts = static_cast<size_t>(at.parts);
  size_t of_rows = HWY_MIN(fours, parts);
  while (parts % of_rows != 0) --of_rows;
  const size_t of_columns = parts / of_rows, row = part / of_columns, column = part % of_columns;
  return {4 * (fours * row / of_rows), HWY_MIN(4 * (fours * (row + 1) / of_rows), g.layout.rows),
          16 * (units * column / of_columns), HWY_MIN(16 * (units * (column + 1) / of_columns), width)};
}

// Probabilities come into scratch of the thread, since others still add up the exponentials.
inline void SplitValues(const Group& g, const Split& split) {
  SplitHead& head = split.Head(split.at.part);
  const Span& span = head.span;
  Group own = g;
  own.scores = g.scratch + g.layout.scores_at;
  head.gone = true;
  const Piece of = PieceOf(g, split.at);
  for (size_t r = of.first_row; r < of.end_row; ++r) {
    const ScoreRows row = Part(g.Rows(r), span.begin, span.end), copy = Part(own.Rows(r), span.begin, span.end);
    const float sum = SumOfRow(g.Rows(r), span);
    head.gone &= NoOtherKeyCounts(g.args, span, split.Max(r), sum);
    if (of.begin >= of.end) continue;
    std::memcpy(copy.Row(0), row.Row(0), (span.padded - span.begin) * sizeof(float));
    Divide(copy, 0, DivisorOf(g.args.guard, sum), g.args.guard);
  }
  if (of.begin < of.end && head.gone) GroupValues(own, span, of);
}

void SplitKvStep(const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, const SplitKvPart& part, void* shared,
                 void* scratch) {
  const DecodeLayout layout = MakeDecodeLayout(args);
  const auto sl = internal::MakeSdpaSplitLayout(layout.of, layout.rows, part.parts, false);
  auto* base = static_cast<uint8_t*>(shared);
  const Split split = {sl, base, part};
  const Group g = {args, layout, batch, kv_head, static_cast<uint8_t*>(scratch), base + sl.scores_at};
  if (part.step == 0) return SplitScores(g, split);
  if (part.step == 1) return ExpOfPart(split, args.guard, g.Rows(0), layout.rows);
  if (part.step == 2) return SplitValues(g, split);
  bool gone = true;
  for (int64_t p = 0; p < part.parts; ++p) gone &= split.Head(p).gone;
  if (part.part == 0 && !gone) DecodeGroup(args, batch, kv_head, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

// Rows of one head as floats, one behind the other, at `to`; returns the end. The operand becomes that.
float* Gathered(const SdpaShape& s, int64_t width, int64_t batch, int64_t kv_head, int bits, const SdpaPlace* places,
                const float*& data, SdpaStrides& strides, float* to) {
  for (int64_t j = 0; j < s.k_len; ++j) {
    const SdpaStrides& at = places == nullptr ? strides : places[j / kSdpaPlaceKeys].strides;
    const float* base = places == nullptr ? data : places[j / kSdpaPlaceKeys].data;
    const int64_t row = places == nullptr ? j : j % kSdpaPlaceKeys;
    const int64_t offset = batch * at.batch + kv_head * at.head + row * at.row;
    if (bits > 0) {
      quant::DecodeRow(reinterpret_cast<const std::byte*>(base) + offset, width, bits, to + j * width);
    } else {
      std::copy_n(base + offset, width, to + j * width);
    }
  }
  data = to, strides = {0, 0, width};
  return to + s.k_len * width;
}
bool IsPlain(const SdpaFloatArgs& args) {
  return args.k_bits == 0 && args.v_bits == 0 && args.k_places == nullptr && args.v_places == nullptr;
}

void DecodeReference(const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* scratch) {
  SdpaFloatArgs plain = args;
  const SdpaShape& s = args.shape;
  auto* row = static_cast<float*>(scratch);
  if (!IsPlain(args)) {
    row = Gathered(s, s.head_size, batch, kv_head, args.k_bits, args.k_places, plain.k, plain.k_strides, row);
    row = Gathered(s, s.v_head_size, batch, kv_head, args.v_bits, args.v_places, plain.v, plain.v_strides, row);
  }
  const int64_t group = s.heads / s.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    internal::SdpaReference(plain, batch, head, 0, s.q_len, row);
}

void PartReference(const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, const SplitKvPart& part, void*,
                   void* scratch) {
  if (part.step == 0 && part.part == 0) DecodeReference(args, batch, kv_head, scratch);
}
struct Form {
  std::string_view name;
  void (*decode)(const SdpaFloatArgs&, int64_t, int64_t, void*);
  void (*part)(const SdpaFloatArgs&, int64_t, int64_t, const SplitKvPart&, void*, void*);
};
constexpr Forms<Form> kForms = {.scalar = {"scalar", &DecodeReference, &PartReference},
                                .avx2 = {"avx2", &N_AVX2::DecodeGroup, &N_AVX2::SplitKvStep},
                                .avx512 = {"avx512", &N_AVX3::DecodeGroup, &N_AVX3::SplitKvStep},
                                .avx512vnni = {"avx512vnni", &N_AVX3_DL::DecodeGroup, &N_AVX3_DL::SplitKvStep}};
// The scalar form needs one row of scores and shares nothing.
bool IsReference(const Form& form) { return form.decode == &DecodeReference; }

}  // namespace

std::string_view internal::SdpaDecodeF32Form(Arch arch) { return kForms[arch].name; }

size_t SdpaDecodeScratchBytes(Arch arch, const SdpaFloatArgs& args) {
  if (!IsReference(kForms[arch])) return MakeDecodeLayout(args).bytes;
  const int64_t gathered = IsPlain(args) ? 0 : args.shape.head_size + args.shape.v_head_size;
  return static_cast<size_t>(args.shape.k_len * (1 + gathered)) * sizeof(float);
}

void SdpaDecode(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* scratch) {
  kForms[arch].decode(args, batch, kv_head, scratch);
}

size_t SdpaSplitKvBytes(Arch arch, const SdpaFloatArgs& args, int64_t parts) {
  if (IsReference(kForms[arch])) return 0;
  const DecodeLayout layout = MakeDecodeLayout(args);
  return internal::MakeSdpaSplitLayout(layout.of, layout.rows, parts, false).bytes;
}

void SdpaSplitKv(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, const SplitKvPart& part,
                 void* shared, void* scratch) {
  kForms[arch].part(args, batch, kv_head, part, shared, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
