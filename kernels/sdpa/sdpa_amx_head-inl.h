// int8 attention by AMX tiles: what runs beside what. Per target: AVX-512 VNNI, for what stands between the products.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_AMX_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_AMX_HEAD_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_AMX_HEAD_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_AMX_HEAD_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_amx-inl.h"
#include "octavo/kernels/sdpa/sdpa_plan-inl.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// The query rows [begin, end) of a head, as many at a time as AmxRowsAtOnce says. All products stand together, those of one block
// with K and those of the block before with V: for some 370 cycles behind each product the core computes one vector of floats a
// cycle instead of two, and after 2000 cycles without one the unit sleeps (kernels/DESIGN.md).
class TileHead {
 public:
  TileHead(const SdpaInt8Args& args, const SdpaLayout& layout, const Int8Plan& plan, int64_t batch, int64_t head,
           const void* packed, void* scratch)
      : args_(args),
        layout_(layout),
        plan_(plan),
        packed_(static_cast<const uint8_t*>(packed)),
        scratch_(static_cast<uint8_t*>(scratch)),
        batch_(batch),
        head_(head),
        out_(reinterpret_cast<int32_t*>(scratch_ + layout.out_at)) {}

  void Run(int64_t begin, int64_t end) {
    const auto at_once = static_cast<int64_t>(internal::AmxRowsAtOnce(args_.shape.k_len));
    for (int64_t row = begin; row < end; row += at_once) {
      const int64_t count = std::min(end - row, at_once);
      ForSpan(args_, row, count, [&](const Span& span) HWY_ATTR { return RunBlock(row, count, span); });
    }
    Values();
    Outputs();
  }

 private:
  static constexpr auto kMostRows = static_cast<int64_t>(internal::kMostAmxRows);

  // Query rows, which are words in scratch, and what the zero point of K contributes to each.
  struct Rows {
    int64_t first, count;
    Span span;
    size_t finished;  // keys that nothing but a scale and a mask of floats stands before
    alignas(64) int32_t terms[kMostRows];
  };
  // Rows whose probabilities wait for V: what their codes sum to, and what the zero point of V makes of it.
  struct Waiting {
    int64_t first = 0, count = 0;
    Span span = {};
    alignas(64) int32_t codes[kMostRows] = {}, terms[kMostRows] = {};
  };

  Block<SdpaInt8Args> BlockAt(int64_t row) const { return {args_, layout_, packed_, scratch_, batch_, head_, row}; }
  uint8_t* At(size_t base, size_t stride, int64_t row) const {
    return scratch_ + base + static_cast<size_t>(row) * stride;
  }

  // Ends the rows that wait; these wait in their place. False: a key outside the span would not have been 0.
  bool RunBlock(int64_t first, int64_t count, const Span& span) {
    Rows rows;
    rows.first = first, rows.count = count, rows.span = span;
    rows.finished = plan_.finishes_scores ? FinishedKeys(BlockAt(first), rows.span, count) : 0;
    MakeQueries(rows);
    const ScoreProduct product = ProductOf(rows);
    TileArgs<int32_t> args = product.args;
    const auto stride = static_cast<ptrdiff_t>(layout_.score_stride);
    for (int64_t r = 0; r < count; r += 16, args.a += 16 * args.a_stride, args.out += 16 * args.out_stride) {
      TilePanels(args, product.panels, product.count, args.out, stride);
    }
    Values();
    Outputs();
    return Probs(rows);
  }

  void MakeQueries(Rows& rows) const {
    std::fill_n(rows.terms, kMostRows, 0);
    const auto* source = static_cast<const uint8_t*>(args_.q) + OffsetOf(args_.q_strides, batch_, head_, rows.first);
    ForBlocks(0, rows.count, [&](auto count, int64_t r) HWY_ATTR {
      constexpr size_t kR = decltype(count)::value;
      RowSlots<int32_t> terms = {};
      PrepareQueries<AmxEngine, kR>(args_, plan_.forms, source + r * args_.q_strides.row, layout_,
                                    At(layout_.q_at, layout_.q_stride, r), terms);
      std::copy_n(terms.at, kR, rows.terms + r);
    });
  }

  ScoreProduct ProductOf(const Rows& rows) const {
    return ScoreProductOf(BlockAt(rows.first), plan_, rows.span, scratch_ + layout_.q_at, rows.terms,
                          scratch_ + layout_.scores_at);
  }

  // Sums to probabilities. False: a key outside the span would not have been 0.
  bool Probs(const Rows& rows) {
    bool done = true;
    ForBlocks(0, rows.count,
              [&](auto count, int64_t r) HWY_ATTR { done = done && ProbsOfRows<decltype(count)::value>(rows, r); });
    if (done) waiting_.first = rows.first, waiting_.count = rows.count, waiting_.span = rows.span;
    return done;
  }
  template <size_t kR>
  HWY_INLINE bool ProbsOfRows(const Rows& all, int64_t first) {
    const Block<SdpaInt8Args> block = BlockAt(all.first + first);
    const Span& span = all.span;
    const auto at = static_cast<size_t>(first);
    const ScoreRows rows = {At(layout_.scores_at, layout_.score_stride, first), layout_.score_stride,
                            static_cast<size_t>(args_.shape.k_len)};
    RowSlots<float> max, sum;
    Scores<kR>(block, ProductOf(all), at, rows, span, all.finished, max);
    if (!Exponentials<kR>(block, rows, max, span, sum)) return false;
    if (args_.prob_codes.exist()) RecodeProbs<kR>(args_.prob_codes, Part(rows, span.begin, span.end), sum);
    if (args_.p_relative) LeaveUndivided<kR>(sum);
    RowSlots<int32_t> row_sums;
    QuantizeSpans<AmxEngine, kR>(plan_.quant, rows, span, layout_.k16, sum, At(layout_.p_at, layout_.p_stride, first),
                                 layout_.p_stride, row_sums);
    for (size_t r = 0; r < kR; ++r) {
      waiting_.codes[at + r] = row_sums[r];
      waiting_.terms[at + r] = static_cast<int32_t>(-static_cast<int64_t>(plan_.forms.v_zero) * row_sums[r]);
    }
    return true;
  }
  // Sums of kR rows, the first of which is row `at` of the product, to scores and their maxima.
  template <size_t kR>
  HWY_INLINE void Scores(const Block<SdpaInt8Args>& block, const ScoreProduct& product, size_t at,
                         const ScoreRows& rows, const Span& span, size_t finished, RowSlots<float>& max) const {
    const TileTerms terms = {product.columns,
                             product.args.row_terms == nullptr ? nullptr : product.args.row_terms + at};
    terms.Add(finished, 16 * product.count, kR, product.args.out + at * product.args.out_stride,
              product.args.out_stride);
    if (finished == 0) return ScoresOfSpan<kR, true>(block, rows, args_.q_scale * args_.k_scale, span, max);
    MaxLanes lanes;
    const MaskRows mask = MaskOf(block, span.begin);
    const ScoreRows part = Part(rows, span.begin, span.begin + finished);
    const bool plain = plan_.scales.scale == 1.0f;
    if (mask.data == nullptr) {
      plain ? ScoresOfSums<kR, false, false>(terms, part, plan_.scales, mask, &lanes)
            : ScoresOfSums<kR, true, false>(terms, part, plan_.scales, mask, &lanes);
    } else {
      plain ? ScoresOfSums<kR, false, true>(terms, part, plan_.scales, mask, &lanes)
            : ScoresOfSums<kR, true, true>(terms, part, plan_.scales, mask, &lanes);
    }
    FinishMaxima<kR>(block, rows, span.begin + finished, span, lanes, max);
  }

  // Second product of the rows that wait.
  void Values() const {
    const uint8_t* v = packed_ + layout_.v_at;
    TileArgs<int32_t> values = ValueArgs<AmxEngine>(layout_, plan_.quant, waiting_.span, scratch_ + layout_.p_at, &v);
    for (int64_t r = 0; r < waiting_.count; r += 16, values.a += 16 * layout_.p_stride) {
      TilePanels(values, v, layout_.v16 / 16, reinterpret_cast<int32_t*>(At(layout_.out_at, layout_.out_stride, r)),
                 static_cast<ptrdiff_t>(layout_.out_stride));
    }
  }

  // The output of the rows that wait, whose product is there.
  void Outputs() {
    const TileTerms terms = {reinterpret_cast<const int32_t*>(packed_ + layout_.v_columns_at),
                             plan_.forms.v_zero == 0 ? nullptr : waiting_.terms};
    terms.Add(0, layout_.v16, static_cast<size_t>(waiting_.count), out_, layout_.v16);
    ForBlocks(0, waiting_.count, [&](auto rows, int64_t first) HWY_ATTR {
      constexpr size_t kR = decltype(rows)::value;
      RowSlots<int32_t> sums = {};
      std::copy_n(waiting_.codes + first, kR, sums.at);
      StoreOutputs<kR>(args_, plan_.output, out_ + static_cast<size_t>(first) * layout_.v16, layout_.v16, sums,
                       OffsetOf(args_.o_strides, batch_, head_, waiting_.first + first));
    });
    waiting_.count = 0;
  }

  const SdpaInt8Args& args_;
  const SdpaLayout layout_;
  const Int8Plan& plan_;
  const uint8_t* packed_;
  uint8_t* scratch_;
  int64_t batch_, head_;
  int32_t* out_;
  Waiting waiting_;
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
