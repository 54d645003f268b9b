#include <algorithm>
#include <cstring>
#include <type_traits>

#include "octavo/kernels/sdpa/sdpa_fp8.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_amx_head-inl.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_finish-inl.h"
#include "octavo/kernels/sdpa/sdpa_int8-inl.h"
#include "octavo/kernels/sdpa/sdpa_pairs-inl.h"
#include "octavo/kernels/sdpa/sdpa_plan-inl.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_store-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using internal::kSdpaRows;
using internal::MakeSdpaLayout;
using internal::SdpaLayout;

template <class E>
void PackInt8(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  const SdpaShape& s = args.shape;
  const SdpaLayout l = LayoutOf<E>(s);
  auto* out = static_cast<uint8_t*>(packed);
  PackKeys<E>(args, RowsOf<uint8_t>(args.k, args.k_strides, batch, kv_head, s.k_len, s.head_size), l.k16, l.d_steps,
              out, reinterpret_cast<int32_t*>(out + l.k_columns_at));
  PackValues<typename E::Values>(args, RowsOf<uint8_t>(args.v, args.v_strides, batch, kv_head, s.k_len, s.v_head_size),
                                 l.k16, l.k_steps, l.v16, out + l.v_at,
                                 reinterpret_cast<int32_t*>(out + l.v_columns_at));
}

// From the second product to bytes. False: an integer is in doubt, and what was written holds nothing.
template <class E, size_t kR>
HWY_INLINE bool FinishedOutput(const Block<SdpaInt8Args>& block, const OutputForm& form, const RowSlots<int32_t>& codes,
                               const TileArgs<int32_t>& values, const uint8_t* v) {
  const SdpaLayout& l = block.layout;
  const SdpaStrides& strides = block.args.o_strides;
  bool certain = true;
  const OutputBounds bounds(form, codes);
  OutputFinish finish = {&form, &bounds,
                         static_cast<uint8_t*>(block.args.o) + OffsetOf(strides, block.batch, block.head, block.row),
                         strides.row, &certain};
  const auto* columns = reinterpret_cast<const int32_t*>(block.packed + l.v_columns_at);
  for (size_t c = 0; c < l.v16; c += 64, finish.out += 64) {
    Tile<E, kR, 4>(values, v + c / 16 * values.panel_bytes, columns + c, finish);
  }
  return certain;
}

// Second product, output. row_sums: of the codes (pairs: PairSums16).
template <class E, size_t kR>
HWY_INLINE void ValueGroup(const Block<SdpaInt8Args>& block, const Int8Plan& plan, const Span& span, const uint8_t* p,
                           const RowSlots<int32_t>& row_sums, int32_t* out) {
  using Values = typename E::Values;
  const SdpaInt8Args& args = block.args;
  const SdpaLayout& l = block.layout;
  const auto v_zero = static_cast<uint32_t>(plan.forms.v_zero);
  const auto term = [&](int32_t sum) { return static_cast<int32_t>(0 - v_zero * static_cast<uint32_t>(sum)); };
  RowSlots<int32_t> terms;
  const uint8_t* v = block.packed + l.v_at;
  TileArgs<int32_t> values = ValueArgs<Values>(l, plan.quant, span, p, &v);
  values.out = out, values.row_terms = v_zero == 0 ? nullptr : terms.at;
  RowSlots<int32_t> codes = {};
  for (size_t r = 0; args.p_relative && r < kR; ++r)
    codes[r] = SumOfCodes<Values>(span, p + r * l.p_stride, row_sums[r]);
  if constexpr (kAddsToOut<Values>) {
    bool whole = true;
    for (size_t r = 0; r < kR; ++r) {
      const PairSums16 sums(row_sums[r]);
      terms[r] = term(sums.first + sums.second);
      whole = whole && StayInS16(sums);
    }
    PairRows<kR>(values, v, l.v16 / 16, whole, args.p_relative);
  } else {
    for (size_t r = 0; r < kRowSlots; ++r) terms[r] = term(row_sums[r]);
    if constexpr (kFinishesOutput) {
      if (plan.output.by_interval && FinishedOutput<Values, kR>(block, plan.output, codes, values, v)) return;
    }
    TileRows<Values, kR>(values, v, reinterpret_cast<const int32_t*>(block.packed + l.v_columns_at), l.v16 / 16);
  }
  StoreOutputs<kR>(args, plan.output, out, l.v16, codes, OffsetOf(args.o_strides, block.batch, block.head, block.row));
}

// kGroups groups of kR rows, one step for all before the next one: where one group ends a step (the fold of a maximum or
// a sum, a division: chains of 30 to 60 cycles) the next group has work.
template <class E, size_t kR, size_t kGroups>
bool Int8Block(const Block<SdpaInt8Args>& block, const Int8Plan& plan, const Span& span) {
  const SdpaInt8Args& args = block.args;
  const SdpaLayout& l = block.layout;
  const auto group = [&](size_t g) {
    return Block<SdpaInt8Args>{
        args, l, block.packed, block.scratch, block.batch, block.head, block.row + static_cast<int64_t>(g * kR)};
  };
  const auto rows_at = [&](size_t at, size_t stride, size_t g) { return block.scratch + at + g * kR * stride; };
  RowSlots<int32_t> terms[kGroups] = {};
  const auto* q = static_cast<const uint8_t*>(args.q) + OffsetOf(args.q_strides, block.batch, block.head, block.row);
  for (size_t g = 0; g < kGroups; ++g, q += static_cast<int64_t>(kR) * args.q_strides.row) {
    PrepareQueries<E, kR>(args, plan.forms, q, l, rows_at(l.q_at, l.q_stride, g), terms[g]);
  }
  const auto rows_of = [&](size_t g) {
    return ScoreRows{rows_at(l.scores_at, l.score_stride, g), l.score_stride, static_cast<size_t>(args.shape.k_len)};
  };
  MaxLanes max_lanes[kGroups];
  const size_t finished = plan.finishes_scores ? FinishedKeys(block, span, static_cast<int64_t>(kR * kGroups)) : 0;
  for (size_t g = 0; g < kGroups; ++g) {
    ScoreProduct scores = ScoreProductOf(group(g), plan, span, rows_at(l.q_at, l.q_stride, g), terms[g].at,
                                         rows_at(l.scores_at, l.score_stride, g));
    if (finished != 0) {
      FinishedScores<E, kR>(scores.args, scores.panels, scores.columns, finished, plan.scales,
                            MaskOf(group(g), span.begin), &max_lanes[g]);
      scores.Skip(finished);
    }
    TileRows<E, kR>(scores.args, scores.panels, scores.columns, scores.count);
  }
  RowSlots<float> sum[kGroups] = {};
  for (size_t g = 0; g < kGroups; ++g) {
    if (finished != 0) {
      RowSlots<float> max;
      FinishMaxima<kR>(group(g), rows_of(g), span.begin + finished, span, max_lanes[g], max);
      if (!Exponentials<kR>(group(g), rows_of(g), max, span, sum[g])) return false;
      continue;
    }
    if (!Softmax<kR, true>(group(g), rows_of(g), args.q_scale * args.k_scale, span, sum[g])) return false;
  }
  RowSlots<int32_t> row_sums[kGroups] = {};
  for (size_t g = 0; g < kGroups; ++g) {
    if (args.prob_codes.exist()) RecodeProbs<kR>(args.prob_codes, Part(rows_of(g), span.begin, span.end), sum[g]);
    if (args.p_relative) LeaveUndivided<kR>(sum[g]);
    QuantizeSpans<typename E::Values, kR>(plan.quant, rows_of(g), span, l.k16, sum[g], rows_at(l.p_at, l.p_stride, g),
                                          l.p_stride, row_sums[g]);
  }
  for (size_t g = 0; g < kGroups; ++g) {
    ValueGroup<E, kR>(group(g), plan, span, rows_at(l.p_at, l.p_stride, g), row_sums[g],
                      reinterpret_cast<int32_t*>(rows_at(l.out_at, l.out_stride, g)));
  }
  return true;
}

template <size_t kR>
bool FloatBlock(const Block<SdpaFloatArgs>& block, const Span& span) {
  const SdpaFloatArgs& args = block.args;
  const SdpaLayout& l = block.layout;
  const ScoreRows rows = {block.scratch + l.scores_at, l.score_stride, static_cast<size_t>(args.shape.k_len)};
  const float* q = args.q + OffsetOf(args.q_strides, block.batch, block.head, block.row);
  const TileArgs<float> scores = {reinterpret_cast<const uint8_t*>(q),
                                  static_cast<size_t>(args.q_strides.row) * 4,
                                  l.d_steps,
                                  l.d_steps * 64,
                                  reinterpret_cast<float*>(rows.base) + span.begin,
                                  l.score_stride / 4,
                                  nullptr};
  TileRows<FloatEngine, kR>(scores, block.packed + span.begin * l.d_steps * 4, nullptr,
                            (span.padded - span.begin) / 16);
  RowSlots<float> sum;
  if (!Softmax<kR, false>(block, rows, 1.0f, span, sum)) return false;
  const ScoreRows part = Part(rows, span.begin, span.end);
  for (size_t r = 0; r < kR; ++r) {
    if (sum[r] != sum[r] && args.guard == SdpaGuard::kNan) {
      std::memset(part.Row(r), 0, (span.padded - span.begin) * sizeof(float));
    } else {
      DividePass(part, r, sum[r]);
    }
  }
  auto* out = reinterpret_cast<float*>(block.scratch + l.out_at);
  const TileArgs<float> values = {part.base, l.score_stride, part.keys, l.k_steps * 64, out, l.v16, nullptr};
  TileRows<FloatEngine, kR>(values, block.packed + l.v_at + span.begin * 64, nullptr, l.v16 / 16);
  for (size_t r = 0; r < kR; ++r) {
    if (internal::Hides(args.visibility)) {  // -0 becomes 0: sdpa.h
      for (size_t c = 0; c < l.v16; c += 16)
        Store16(Add16(Load16(out + r * l.v16 + c), Set16(0.0f)), out + r * l.v16 + c);
    }
    const int64_t at = OffsetOf(args.o_strides, block.batch, block.head, block.row + static_cast<int64_t>(r));
    std::memcpy(args.o + at, out + r * l.v16, static_cast<size_t>(args.shape.v_head_size) * sizeof(float));
  }
  return true;
}

template <class E>
void RowsInt8(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void* packed,
              void* scratch) {
  const SdpaLayout l = LayoutOf<E>(args.shape);
  const Int8Plan plan = PlanOf<E>(args);
  const auto run = [&](auto rows, auto groups, int64_t row) HWY_ATTR {
    constexpr size_t kR = decltype(rows)::value, kGroups = decltype(groups)::value;
    const Block<SdpaInt8Args> block = {
        args, l, static_cast<const uint8_t*>(packed), static_cast<uint8_t*>(scratch), batch, head, row};
    ForSpan(args, row, static_cast<int64_t>(kR * kGroups),
            [&](const Span& span) HWY_ATTR { return Int8Block<E, kR, kGroups>(block, plan, span); });
  };
  using One = std::integral_constant<size_t, 1>;
  using Two = std::integral_constant<size_t, 2>;
  if (args.shape.k_len <= internal::kTwoGroupKeys) {
    for (; begin + 12 <= end; begin += 12) run(std::integral_constant<size_t, 6>(), Two(), begin);
    if (begin + 8 == end) {
      run(std::integral_constant<size_t, 4>(), Two(), begin);
      return;
    }
  }
  ForBlocks(begin, end, [&](auto rows, int64_t row) HWY_ATTR { run(rows, One(), row); });
}

#if HWY_TARGET > HWY_AVX3_DL
// Without VNNI.
inline void PackWords(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  (internal::ProbPairsFit(args) ? &PackInt8<S16PairEngine> : &PackInt8<S16Engine>)(args, batch, kv_head, packed);
}
inline void RowsWords(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                      const void* packed, void* scratch) {
  (internal::ProbPairsFit(args) ? &RowsInt8<S16PairEngine> : &RowsInt8<S16Engine>)(args, batch, head, begin, end,
                                                                                   packed, scratch);
}
#endif

#if HWY_TARGET == HWY_AVX3_DL
void RowsAmx(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void* packed,
             void* scratch) {
  const Int8Plan plan = PlanOf<AmxEngine>(args);
  tile::LoadConfig(tile::kWholeTiles);
  TileHead(args, internal::MakeAmxLayout(args.shape), plan, batch, head, packed, scratch).Run(begin, end);
  tile::Release();
}
#endif

void RowsFloat(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void* packed,
               void* scratch) {
  const SdpaLayout l = MakeSdpaLayout(args.shape, FloatEngine::kPerWord);
  ForBlocks(begin, end, [&](auto rows, int64_t row) HWY_ATTR {
    const Block<SdpaFloatArgs> block = {
        args, l, static_cast<const uint8_t*>(packed), static_cast<uint8_t*>(scratch), batch, head, row};
    ForSpan(args, row, decltype(rows)::value,
            [&](const Span& span) HWY_ATTR { return FloatBlock<decltype(rows)::value>(block, span); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

// The scalar form reads K and V where they lie and needs one row of scores.
template <class Args>
void PackNothing(const Args&, int64_t, int64_t, void*) {}
template <class Args>
void RowsReference(const Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void*,
                   void* scratch) {
  internal::SdpaReference(args, batch, head, begin, end, static_cast<float*>(scratch));
}

using internal::SdpaLayout;

// How K and V are packed, how rows run, and where things lie for both; no layout: nothing is packed, and scratch is one row of scores.
template <class Args>
struct Form {
  std::string_view name;
  Tile tile;
  void (*pack)(const Args&, int64_t, int64_t, void*);
  void (*rows)(const Args&, int64_t, int64_t, int64_t, int64_t, const void*, void*);
  SdpaLayout (*layout)(const Args& args);

  size_t PackedBytes(const Args& args) const { return layout == nullptr ? 0 : layout(args).packed_bytes; }
  size_t ScratchBytes(const Args& args) const {
    return layout == nullptr ? static_cast<size_t>(args.shape.k_len) * sizeof(float) : layout(args).scratch_bytes;
  }
};

SdpaLayout FloatLayout(const SdpaFloatArgs& args) { return internal::MakeSdpaLayout(args.shape, 1); }
// As the int8 engines lay it out (sdpa_pairs-inl.h, sdpa_tile-inl.h, sdpa_amx-inl.h).
SdpaLayout PairsLayout(const SdpaInt8Args& args) {
  return internal::MakeSdpaLayout(args.shape, 2, 12, 1, internal::ProbPairsFit(args) ? 4 : 2);
}
SdpaLayout VnniLayout(const SdpaInt8Args& args) { return internal::MakeSdpaLayout(args.shape, 4, 12); }
SdpaLayout AmxLayout(const SdpaInt8Args& args) { return internal::MakeAmxLayout(args.shape); }

using internal::kSdpaAmxTile, internal::kSdpaYmmTile, internal::kSdpaZmmTile;

using FloatForm = Form<SdpaFloatArgs>;
constexpr Forms<FloatForm> kFloat = {
    .scalar = {"scalar", Tile{}, &PackNothing<SdpaFloatArgs>, &RowsReference<SdpaFloatArgs>, nullptr},
    .avx2 = {"avx2", kSdpaYmmTile, &N_AVX2::PackFloat, &N_AVX2::RowsFloat, &FloatLayout},
    .avx512 = {"avx512", kSdpaZmmTile, &N_AVX3::PackFloat, &N_AVX3::RowsFloat, &FloatLayout},
    .avx512vnni = {"avx512vnni", kSdpaZmmTile, &N_AVX3_DL::PackFloat, &N_AVX3_DL::RowsFloat, &FloatLayout}};

using Int8Form = Form<SdpaInt8Args>;
constexpr Forms<Int8Form> kInt8 = {
    .scalar = {"scalar", Tile{}, &PackNothing<SdpaInt8Args>, &RowsReference<SdpaInt8Args>, nullptr},
    .avx2 = {"avx2", kSdpaYmmTile, &N_AVX2::PackWords, &N_AVX2::RowsWords, &PairsLayout},
    .avx512 = {"avx512", kSdpaZmmTile, &N_AVX3::PackWords, &N_AVX3::RowsWords, &PairsLayout},
    .avx512vnni = {"avx512vnni", kSdpaZmmTile, &N_AVX3_DL::PackInt8<N_AVX3_DL::VnniEngine>,
                   &N_AVX3_DL::RowsInt8<N_AVX3_DL::VnniEngine>, &VnniLayout},
    .avxvnni = Int8Form{"avxvnni", kSdpaYmmTile, &N_AVX2::PackInt8<N_AVX2::VnniEngine>,
                        &N_AVX2::RowsInt8<N_AVX2::VnniEngine>, &VnniLayout},
    .amx = Int8Form{"amx", kSdpaAmxTile, &N_AVX3_DL::PackInt8<N_AVX3_DL::AmxEngine>, &N_AVX3_DL::RowsAmx, &AmxLayout}};

}  // namespace

std::string_view internal::SdpaF32Form(Arch arch) { return kFloat[arch].name; }
std::string_view internal::SdpaInt8Form(Arch arch) { return kInt8[arch].name; }

Tile SdpaTile(Arch arch, const SdpaFloatArgs&) { return kFloat[arch].tile; }
Tile SdpaTile(Arch arch, const SdpaInt8Args& args) {
  return quant::IsFp8(args.q_type) ? internal::SdpaFp8Tile(arch, args) : kInt8[arch].tile;
}
size_t SdpaPackedBytes(Arch arch, const SdpaFloatArgs& args) { return kFloat[arch].PackedBytes(args); }
size_t SdpaPackedBytes(Arch arch, const SdpaInt8Args& args) {
  if (quant::IsFp8(args.q_type)) return internal::SdpaFp8PackedBytes(arch, args);
  return kInt8[arch].PackedBytes(args);
}
size_t SdpaScratchBytes(Arch arch, const SdpaFloatArgs& args) { return kFloat[arch].ScratchBytes(args); }
size_t SdpaScratchBytes(Arch arch, const SdpaInt8Args& args) {
  if (quant::IsFp8(args.q_type)) return internal::SdpaFp8ScratchBytes(arch, args);
  return kInt8[arch].ScratchBytes(args);
}
void SdpaPack(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* packed) {
  kFloat[arch].pack(args, batch, kv_head, packed);
}
void SdpaPack(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  if (quant::IsFp8(args.q_type)) return internal::SdpaFp8Pack(arch, args, batch, kv_head, packed);
  kInt8[arch].pack(args, batch, kv_head, packed);
}
void SdpaRows(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
              const void* packed, void* scratch) {
  kFloat[arch].rows(args, batch, head, begin, end, packed, scratch);
}
void SdpaRows(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
              const void* packed, void* scratch) {
  if (quant::IsFp8(args.q_type)) return internal::SdpaFp8Rows(arch, args, batch, head, begin, end, packed, scratch);
  kInt8[arch].rows(args, batch, head, begin, end, packed, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
