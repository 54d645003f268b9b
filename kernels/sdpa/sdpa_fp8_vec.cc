// fp8 attention, in floats or in pairs of bf16: K and V are decoded while they are packed, a query row when it is read, and
// probabilities are rounded to values of their type.
#include <algorithm>
#include <cstring>

#include "octavo/kernels/sdpa/sdpa_fp8.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_fp8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_fp8_floats-inl.h"
#include "octavo/kernels/sdpa/sdpa_fp8_pairs-inl.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/kernels/simd/fp8-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using internal::MakeSdpaLayout;
using internal::SdpaLayout;

template <class F>
SdpaLayout LayoutOf(const SdpaShape& shape) {
  return MakeSdpaLayout(shape, F::kPerWord, F::kRows, F::kStepsTo);
}

template <class F>
void PackFp8Head(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  const SdpaShape& s = args.shape;
  const SdpaLayout l = LayoutOf<F>(s);
  const auto k = RowsOf<uint8_t>(args.k, args.k_strides, batch, kv_head, s.k_len, s.head_size);
  const auto v = RowsOf<uint8_t>(args.v, args.v_strides, batch, kv_head, s.k_len, s.v_head_size);
  auto* out = static_cast<uint8_t*>(packed);
  F::PackKeys(args.k_type, k, l, out);
  F::PackValues(args.v_type, v, l, out + l.v_at);
}

// What stands between the codes of probabilities and output.
struct Fp8Ends {
  Fp8Requant p, o;
};

// e of one row to the values of the codes of e / sum, as words; rows.keys is padded with e = 0.
template <class F>
HWY_INLINE void RoundProbabilities(const Fp8Requant& p, const ScoreRows& rows, size_t r, float sum_value,
                                   uint8_t* out) {
  const Fp8D d;
  const Fp8V sum = hn::Set(d, sum_value), reciprocal = hn::Set(d, 1.0f / sum_value);
  const float* row = rows.Row(r);
  for (size_t i = 0; i < rows.keys; i += hn::MaxLanes(d)) {
    const Fp8V e = hn::Load(d, row + i);
    Fp8V prob;
    if (p.divide) {
      prob = hn::Div(e, sum);
    } else {  // the quotient as in ProbToInt; where its remainder underflows, the code is 0 either way
      prob = hn::Mul(e, reciprocal);
      prob = hn::MulAdd(hn::NegMulAdd(prob, sum, e), reciprocal, prob);
    }
    F::StoreProbs(Fp8Rounded(p, prob), out, i);
  }
}

HWY_INLINE void Scale(float* row, size_t n, float factor) {
  const Fp8D d;
  const Fp8V f = hn::Set(d, factor);
  for (size_t i = 0; i < n; i += hn::MaxLanes(d)) hn::Store(hn::Mul(hn::Load(d, row + i), f), d, row + i);
}

// From the products of kR rows, from row `first` of the block on, to the words of the second product.
template <class F, size_t kR>
bool Probabilities(const Block<SdpaInt8Args>& block, size_t first, const Fp8Ends& ends, const Span& span) {
  const SdpaInt8Args& args = block.args;
  const SdpaLayout& l = block.layout;
  const ScoreRows rows = {block.scratch + l.scores_at + first * l.score_stride, l.score_stride,
                          static_cast<size_t>(args.shape.k_len)};
  for (size_t r = 0; r < kR; ++r)
    Scale(rows.Row(r) + span.begin, span.padded - span.begin, args.q_scale * args.k_scale);
  const Block<SdpaInt8Args> own = {
      args, l, block.packed, block.scratch, block.batch, block.head, block.row + static_cast<int64_t>(first)};
  RowSlots<float> sum;
  if (!Softmax<kR, false>(own, rows, 1.0f, span, sum)) return false;
  const ScoreRows part = Part(rows, span.begin, span.end);
  const size_t bytes = (span.padded - span.begin) / F::kPerWord * 4;
  const size_t all = F::Steps(part.keys) * 4;
  for (size_t r = 0; r < kR; ++r) {
    uint8_t* p = F::Probs(block, part, first, r);
    if (sum[r] != sum[r] && args.guard == SdpaGuard::kNan) {
      std::memset(p, 0, bytes);
    } else {
      RoundProbabilities<F>(ends.p, part, r, sum[r], p);
    }
    if (all > bytes) std::memset(p + bytes, 0, all - bytes);  // the rest of a tile, whose V is 0 too
  }
  return true;
}

// Rows block.row.. of the output from the sums of the second product.
void StoreRows(const Block<SdpaInt8Args>& block, int64_t count, const Fp8Ends& ends) {
  const SdpaInt8Args& args = block.args;
  const size_t v16 = block.layout.v16;
  auto* y = reinterpret_cast<float*>(block.scratch + block.layout.out_at);
  const auto width = static_cast<size_t>(args.shape.v_head_size);
  for (int64_t r = 0; r < count; ++r, y += v16) {
    Scale(y, v16, args.p_scale * args.v_scale);
    const int64_t at = OffsetOf(args.o_strides, block.batch, block.head, block.row + r);
    if (args.o_type == quant::DType::kF32) {
      std::memcpy(static_cast<float*>(args.o) + at, y, width * sizeof(float));
    } else {
      EncodeFp8(ends.o, y, width, static_cast<uint8_t*>(args.o) + at);
    }
  }
}

// Up to kR rows, the first `count` of which are there.
template <class F, size_t kR>
bool Fp8Block(const Block<SdpaInt8Args>& block, int64_t count, const Fp8Ends& ends, const Span& span) {
  const SdpaInt8Args& args = block.args;
  const SdpaLayout& l = block.layout;
  uint8_t *q = block.scratch + l.q_at, *base = block.scratch + l.scores_at + span.begin * 4;
  const auto* source =
      static_cast<const uint8_t*>(args.q) + OffsetOf(args.q_strides, block.batch, block.head, block.row);
  for (int64_t r = 0; r < count; ++r) {
    F::Query(args.q_type, source + r * args.q_strides.row, static_cast<size_t>(args.shape.head_size), l,
             q + static_cast<size_t>(r) * l.q_stride);
  }
  const TileArgs<float> scores = {
      q, l.q_stride, l.d_steps, l.d_steps * 64, reinterpret_cast<float*>(base), l.score_stride / 4, nullptr};
  F::template Products<kR>(scores, block.packed + span.begin * l.d_steps * 4, (span.padded - span.begin) / 16);
  bool done = true;
  if constexpr (kR <= internal::kSdpaRows) {
    done = Probabilities<F, kR>(block, 0, ends, span);
  } else {
    ForBlocks(0, count, [&](auto rows, int64_t first) HWY_ATTR {
      done = done && Probabilities<F, decltype(rows)::value>(block, static_cast<size_t>(first), ends, span);
    });
  }
  if (!done) return false;
  const ScoreRows part = {base, l.score_stride, span.end - span.begin};
  const TileArgs<float> values = {F::Probs(block, part, 0, 0),
                                  F::ProbStride(l),
                                  F::Steps(part.keys),
                                  l.k_steps * 64,
                                  reinterpret_cast<float*>(block.scratch + l.out_at),
                                  l.v16,
                                  nullptr};
  F::template Products<kR>(values, block.packed + l.v_at + span.begin / F::kPerWord * 64, l.v16 / 16);
  StoreRows(block, count, ends);
  return true;
}

template <class F, size_t kR>
void BlockOfKeys(const Block<SdpaInt8Args>& block, int64_t count, const Fp8Ends& ends) {
  const SdpaShape& s = block.args.shape;
  const Span span = MakeSpan(s, internal::SpanOf(block.args.visibility.window, s, block.row, count));
  if (!Fp8Block<F, kR>(block, count, ends, span)) Fp8Block<F, kR>(block, count, ends, MakeSpan(s, {0, s.k_len + 63}));
}

Fp8Ends EndsOf(const SdpaInt8Args& args) {
  return {MakeFp8Requant(args.p_scale, args.p_type),
          args.o_type == quant::DType::kF32 ? Fp8Requant{} : MakeFp8Requant(args.o_scale, args.o_type)};
}

template <class F>
void RowsFp8(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void* packed,
             void* scratch) {
  const SdpaLayout l = LayoutOf<F>(args.shape);
  const Fp8Ends ends = EndsOf(args);
  ForBlocks(begin, end, [&](auto rows, int64_t row) HWY_ATTR {
    constexpr size_t kR = decltype(rows)::value;
    const Block<SdpaInt8Args> block = {
        args, l, static_cast<const uint8_t*>(packed), static_cast<uint8_t*>(scratch), batch, head, row};
    BlockOfKeys<F, kR>(block, static_cast<int64_t>(kR), ends);
  });
}

#if HWY_TARGET == HWY_AVX3_DL
void RowsFp8Tiles(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void* packed,
                  void* scratch) {
  constexpr auto kRows = static_cast<int64_t>(Fp8Tiles::kRows);
  const SdpaLayout l = LayoutOf<Fp8Tiles>(args.shape);
  const Fp8Ends ends = EndsOf(args);
  tile::LoadConfig(tile::kWholeTiles);
  for (int64_t row = begin; row < end; row += kRows) {
    const Block<SdpaInt8Args> block = {
        args, l, static_cast<const uint8_t*>(packed), static_cast<uint8_t*>(scratch), batch, head, row};
    BlockOfKeys<Fp8Tiles, Fp8Tiles::kRows>(block, std::min(end - row, kRows), ends);
  }
  tile::Release();
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"
#include "octavo/kernels/fp8/fp8.h"

namespace octavo::kernels::internal {
namespace {

using PackFn = void(const SdpaInt8Args&, int64_t, int64_t, void*);
using RowsFn = void(const SdpaInt8Args&, int64_t, int64_t, int64_t, int64_t, const void*, void*);

// The scalar form reads K and V where they lie and needs one row of scores.
void PackNothing(const SdpaInt8Args&, int64_t, int64_t, void*) {}
void RowsReference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void*,
                   void* scratch) {
  SdpaFp8Reference(args, batch, head, begin, end, static_cast<float*>(scratch));
}

// What runs: decoding of K and V, the rows, and how both are laid out; per_word 0: nothing is packed.
struct Form {
  std::string_view name;
  Tile tile;
  PackFn* pack;
  RowsFn* rows;
  size_t per_word, rows_at_once, steps_to;
  SdpaLayout Layout(const SdpaShape& shape) const { return MakeSdpaLayout(shape, per_word, rows_at_once, steps_to); }
};
template <class F>
constexpr Form MakeForm(std::string_view name, Tile tile, PackFn* pack, RowsFn* rows) {
  return {name, tile, pack, rows, F::kPerWord, F::kRows, F::kStepsTo};
}
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", Tile{}, &PackNothing, &RowsReference, 0, 0, 0},
    .avx2 = MakeForm<N_AVX2::Fp8Floats>("avx2", kSdpaYmmTile, &N_AVX2::PackFp8Head<N_AVX2::Fp8Floats>,
                                        &N_AVX2::RowsFp8<N_AVX2::Fp8Floats>),
    .avx512 = MakeForm<N_AVX3::Fp8Floats>("avx512", kSdpaZmmTile, &N_AVX3::PackFp8Head<N_AVX3::Fp8Floats>,
                                          &N_AVX3::RowsFp8<N_AVX3::Fp8Floats>),
    .avx512vnni =
        MakeForm<N_AVX3_DL::Fp8Floats>("avx512vnni", kSdpaZmmTile, &N_AVX3_DL::PackFp8Head<N_AVX3_DL::Fp8Floats>,
                                       &N_AVX3_DL::RowsFp8<N_AVX3_DL::Fp8Floats>),
    .amx = MakeForm<N_AVX3_DL::Fp8Tiles>("amx", kSdpaAmxTile, &N_AVX3_DL::PackFp8Head<N_AVX3_DL::Fp8Tiles>,
                                         &N_AVX3_DL::RowsFp8Tiles)};
constexpr Form kPairs = MakeForm<N_AVX3_DL::Fp8Pairs>(
    "avx512bf16", kSdpaZmmTile, &N_AVX3_DL::PackFp8Head<N_AVX3_DL::Fp8Pairs>, &N_AVX3_DL::RowsFp8<N_AVX3_DL::Fp8Pairs>);

const Form& FormOf(Arch arch, bool bf16_pairs) { return Fp8InPairs(arch, bf16_pairs) ? kPairs : kForms[arch]; }

}  // namespace

std::string_view SdpaFp8Form(Arch arch, bool bf16_pairs) { return FormOf(arch, bf16_pairs).name; }

Tile SdpaFp8Tile(Arch arch, const SdpaInt8Args& args) { return FormOf(arch, args.bf16_pairs).tile; }
size_t SdpaFp8PackedBytes(Arch arch, const SdpaInt8Args& args) {
  const Form& form = FormOf(arch, args.bf16_pairs);
  return form.per_word == 0 ? 0 : form.Layout(args.shape).packed_bytes;
}
size_t SdpaFp8ScratchBytes(Arch arch, const SdpaInt8Args& args) {
  const Form& form = FormOf(arch, args.bf16_pairs);
  return form.per_word == 0 ? static_cast<size_t>(args.shape.k_len) * sizeof(float)
                            : form.Layout(args.shape).scratch_bytes;
}
void SdpaFp8Pack(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  FormOf(arch, args.bf16_pairs).pack(args, batch, kv_head, packed);
}
void SdpaFp8Rows(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                 const void* packed, void* scratch) {
  FormOf(arch, args.bf16_pairs).rows(args, batch, head, begin, end, packed, scratch);
}

}  // namespace octavo::kernels::internal
#endif  // HWY_ONCE
