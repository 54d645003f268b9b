// Few query rows against many keys (decoding), in float: all heads that share a K and V at once, so that both come from memory
// once. K is packed by 64 keys, which stay in L1 until every row has met them; V is read where it lies, 64 keys at a time for
// the same reason. Sums run over the keys in the order of the other forms, hence equal bits.
#include <cstring>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/kernels/sdpa/sdpa_window.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_decode_f32_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_decode_split-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"

#ifndef OCTAVO_KERNELS_SDPA_DECODE_LAYOUT
#define OCTAVO_KERNELS_SDPA_DECODE_LAYOUT
namespace octavo::kernels {
namespace {

// Scratch in bytes: 64 keys of K, the scores of all rows, their sums over V.
struct DecodeLayout {
  internal::SdpaLayout of;
  size_t rows, scores_at, sums_at, bytes;
};
DecodeLayout MakeDecodeLayout(const SdpaShape& s) {
  DecodeLayout l{};
  l.of = internal::MakeSdpaLayout(s, 1);
  l.rows = static_cast<size_t>(s.heads / s.kv_heads * s.q_len);
  l.scores_at = internal::RoundUp(l.of.d_steps * 256, 64);
  l.sums_at = l.scores_at + l.rows * l.of.score_stride;
  l.bytes = l.sums_at + l.rows * l.of.out_stride;
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

// f(number of rows as a constant, first head of the group, first query row, `of_heads`): rows that follow each other at one
// stride. One query row a head: the rows are the heads.
template <class F>
HWY_INLINE void ForRuns(const Group& g, bool of_heads, F f) {
  if (of_heads) return ForBlocks(0, g.heads(), [&](auto count, int64_t head) HWY_ATTR { f(count, head, int64_t{0}); });
  for (int64_t head = 0; head < g.heads(); ++head) {
    ForBlocks(0, g.args.shape.q_len, [&](auto count, int64_t row) HWY_ATTR { f(count, head, row); });
  }
}

inline void GroupScores(const Group& g, const Span& span) {
  const SdpaFloatArgs& args = g.args;
  const SdpaShape& s = args.shape;
  const internal::SdpaLayout& l = g.layout.of;
  const bool of_heads = s.q_len == 1;
  const auto stride = static_cast<size_t>(of_heads ? args.q_strides.head : args.q_strides.row) * sizeof(float);
  const auto k = RowsOf<float>(args.k, args.k_strides, g.batch, g.kv_head, s.k_len, s.head_size);
  for (size_t at = span.begin; at < span.padded; at += 64) {
    const size_t columns = HWY_MIN(span.padded - at, size_t{64});
    const HeadRows<float> part = {k.data + static_cast<int64_t>(at) * k.stride, k.stride, k.count - at, k.width};
    PackRowsAsColumns(
        columns, l.d_steps, [&](size_t row, size_t step) HWY_ATTR { return LoadFloats(part, row, step); }, g.scratch);
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
  const float* from = v.data + static_cast<int64_t>(at) * v.stride;
  size_t c = of.begin;
  for (; c + 16 * kC <= of.end; c += 16 * kC) {
    ValueTile<kR, kC>(p, p_stride, from + c, v.stride, keys, 16, g.Sums(first) + c, v16);
  }
  if constexpr (kC == 4) {
    if (c + 32 <= of.end) {
      ValueTile<kR, 2>(p, p_stride, from + c, v.stride, keys, 16, g.Sums(first) + c, v16);
      c += 32;
    }
  }
  for (; c < of.end; c += 16) {
    ValueTile<kR, 1>(p, p_stride, from + c, v.stride, keys, HWY_MIN(of.end - c, size_t{16}), g.Sums(first) + c, v16);
  }
}

// The sums of a piece, and its part of the output.
inline void GroupValues(const Group& g, const Span& span, const Piece& of) {
  const SdpaFloatArgs& args = g.args;
  const SdpaShape& s = args.shape;
  const auto v = RowsOf<float>(args.v, args.v_strides, g.batch, g.kv_head, s.k_len, s.v_head_size);
  std::memset(g.Sums(of.first_row), 0, (of.end_row - of.first_row) * g.layout.of.out_stride);
  for (size_t at = span.begin; at < span.end; at += 64) {
    const size_t keys = HWY_MIN(span.end - at, size_t{64});
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
  const DecodeLayout layout = MakeDecodeLayout(s);
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
  const DecodeLayout layout = MakeDecodeLayout(args.shape);
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

void DecodeReference(const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* scratch) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    internal::SdpaReference(args, batch, head, 0, args.shape.q_len, static_cast<float*>(scratch));
  }
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
  return IsReference(kForms[arch]) ? static_cast<size_t>(args.shape.k_len) * sizeof(float)
                                   : MakeDecodeLayout(args.shape).bytes;
}

void SdpaDecode(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* scratch) {
  kForms[arch].decode(args, batch, kv_head, scratch);
}

size_t SdpaSplitKvBytes(Arch arch, const SdpaFloatArgs& args, int64_t parts) {
  if (IsReference(kForms[arch])) return 0;
  const DecodeLayout layout = MakeDecodeLayout(args.shape);
  return internal::MakeSdpaSplitLayout(layout.of, layout.rows, parts, false).bytes;
}

void SdpaSplitKv(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, const SplitKvPart& part,
                 void* shared, void* scratch) {
  kForms[arch].part(args, batch, kv_head, part, shared, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
