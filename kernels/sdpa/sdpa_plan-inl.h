// What the blocks of a call of int8 attention have in common, and the operands of its two products. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_PLAN_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_PLAN_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_PLAN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_finish-inl.h"
#include "octavo/kernels/sdpa/sdpa_int8-inl.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_store-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/kernels/sdpa/sdpa_window.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

template <class E>
HWY_INLINE SdpaLayout LayoutOf(const SdpaShape& shape) {
  return internal::MakeSdpaLayout(shape, E::kPerWord, E::kRows, E::kStepsTo, E::Values::kPerWord);
}

// What all blocks of a call have in common.
struct Int8Plan {
  Int8Forms forms;
  OutputForm output;
  ProbQuant quant;
  ScoreScales scales;
  bool finishes_scores;
};
template <class E>
HWY_INLINE Int8Plan PlanOf(const SdpaInt8Args& args) {
  return {FormsOf(args), OutputFormOf(args), ProbQuantOf<typename E::Values>(args),
          ScoreScales(args.q_scale * args.k_scale, args.scale), FinishesScores(args)};
}

// First product of query rows that are words already; terms: what the zero point of K contributes to each.
struct ScoreProduct {
  TileArgs<int32_t> args;
  const uint8_t* panels;
  const int32_t* columns;
  size_t count;  // of panels

  HWY_INLINE void Skip(size_t keys) {
    args.out += keys, columns += keys, panels += keys / 16 * args.panel_bytes, count -= keys / 16;
  }
};
HWY_INLINE ScoreProduct ScoreProductOf(const Block<SdpaInt8Args>& block, const Int8Plan& plan, const Span& span,
                                       const uint8_t* q, const int32_t* terms, uint8_t* scores) {
  const SdpaLayout& l = block.layout;
  return {{q, l.q_stride, l.d_steps, l.d_steps * 64, reinterpret_cast<int32_t*>(scores) + span.begin,
           l.score_stride / 4, plan.forms.k_zero == 0 ? nullptr : terms},
          block.packed + span.begin * l.d_steps * 4,
          reinterpret_cast<const int32_t*>(block.packed + l.k_columns_at) + span.begin,
          (span.padded - span.begin) / 16};
}

// The steps of the second product: those of the span, unless a probability of 0 is not the word 0.
template <class E>
HWY_INLINE TileArgs<int32_t> ValueArgs(const SdpaLayout& l, const ProbQuant& quant, const Span& span, const uint8_t* p,
                                       const uint8_t** v) {
  TileArgs<int32_t> args = {p, l.p_stride, l.k_steps, l.k_steps * 64, nullptr, l.v16, nullptr};
  if (span.whole || (E::kPerWord == 4 && quant.zero != 0)) return args;
  const size_t begin = span.begin / E::kPerWord;
  args.a += begin * 4;
  args.steps = HWY_MIN(internal::RoundUp(span.padded / E::kPerWord, E::kStepsTo), l.k_steps) - begin;
  *v += begin * 64;
  return args;
}

// f(span) first with the keys that `rows` rows need, then, where that was too few, with all.
template <class Args, class F>
HWY_INLINE void ForSpan(const Args& args, int64_t row, int64_t rows, F f) {
  const SdpaShape& s = args.shape;
  if (!f(MakeSpan(s, internal::SpanOf(args.visibility.window, s, row, rows)))) f(MakeSpan(s, {0, s.k_len + 63}));
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
