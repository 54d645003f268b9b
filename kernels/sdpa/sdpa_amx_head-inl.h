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
    const auto at_once =
        static_cast<int64_t>(internal::AmxRowsAtOnce(args_.shape.k_len, internal::HasWindow(args_.visibility.window)));
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

  ScoreRows ScoresAt(int64_t row) const {
    return {At(layout_.scores_at, layout_.score_stride, row), layout_.score_stride,
            static_cast<size_t>(args_.shape.k_len)};
  }
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
    Values();
    const ScoreProduct product = ProductOf(rows);
    TilePanels(product.args, product.panels, product.count, product.args.out,
               static_cast<ptrdiff_t>(layout_.score_stride), count);
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

  // Sums to probabilities, a step for up to sixteen rows before the next one: where some rows end a step (the fold of a maximum or a
  // sum, a division), the others have work. False: a key outside the span would not have been 0.
  bool Probs(const Rows& rows) {
    for (int64_t r = 0, end = 0; r < rows.count; r = end) {
      end = rows.count - r <= 16 ? rows.count : r + 12;
      if (!ProbsOf(rows, r, end)) return false;
    }
    waiting_.first = rows.first, waiting_.count = rows.count, waiting_.span = rows.span;
    return true;
  }
  HWY_NOINLINE bool ProbsOf(const Rows& rows, int64_t begin, int64_t end) {
    struct Group {
      RowSlots<float> max, sum;
    };
    Group groups[4];  // 16 rows at most: 6, 6, 2 and 1
    const auto steps = [&](auto f) HWY_ATTR {
      Group* group = groups;
      ForBlocks(begin, end, [&](auto count, int64_t r) HWY_ATTR { f(count, r, *group++); });
    };
    bool done = true;
    steps([&](auto count, int64_t r, Group& g) HWY_ATTR {
      constexpr size_t kR = decltype(count)::value;
      Scores<kR>(BlockAt(rows.first + r), ProductOf(rows), static_cast<size_t>(r), ScoresAt(r), rows.span,
                 rows.finished, g.max);
    });
    steps([&](auto count, int64_t r, Group& g) HWY_ATTR {
      constexpr size_t kR = decltype(count)::value;
      done = done && Exponentials<kR>(BlockAt(rows.first + r), ScoresAt(r), g.max, rows.span, g.sum);
    });
    if (!done) return false;
    steps([&](auto count, int64_t r, Group& g) HWY_ATTR { Codes<decltype(count)::value>(rows.span, r, g.sum); });
    return true;
  }
  template <size_t kR>
  HWY_INLINE void Codes(const Span& span, int64_t first, RowSlots<float>& sum) {
    const ScoreRows rows = ScoresAt(first);
    if (args_.prob_codes.exist()) RecodeProbs<kR>(args_.prob_codes, Part(rows, span.begin, span.end), sum);
    if (args_.p_relative) LeaveUndivided<kR>(sum);
    RowSlots<int32_t> row_sums;
    QuantizeSpans<AmxEngine, kR>(plan_.quant, rows, span, layout_.k16, sum, At(layout_.p_at, layout_.p_stride, first),
                                 layout_.p_stride, row_sums);
    const auto at = static_cast<size_t>(first);
    for (size_t r = 0; r < kR; ++r) {
      waiting_.codes[at + r] = row_sums[r];
      waiting_.terms[at + r] = static_cast<int32_t>(-static_cast<int64_t>(plan_.forms.v_zero) * row_sums[r]);
    }
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
    const TileArgs<int32_t> values =
        ValueArgs<AmxEngine>(layout_, plan_.quant, waiting_.span, scratch_ + layout_.p_at, &v);
    TilePanels(values, v, layout_.v16 / 16, out_, static_cast<ptrdiff_t>(layout_.out_stride), waiting_.count);
  }

  // The output of the rows that wait, whose product is there.
  void Outputs() {
    const auto* columns = reinterpret_cast<const int32_t*>(packed_ + layout_.v_columns_at);
    const bool has_rows = plan_.forms.v_zero != 0;
    ForBlocks(0, waiting_.count, [&](auto rows, int64_t first) HWY_ATTR {
      constexpr size_t kR = decltype(rows)::value;
      const TileTerms terms = {columns, has_rows ? waiting_.terms + first : nullptr};
      RowSlots<int32_t> codes = {};
      std::copy_n(waiting_.codes + first, kR, codes.at);
      int32_t* sums = out_ + static_cast<size_t>(first) * layout_.v16;
      const int64_t at = OffsetOf(args_.o_strides, batch_, head_, waiting_.first + first);
      const OutputForm& form = plan_.output;
      if (form.by_interval &&
          StoreByInterval<kR>(args_, form, OutputBounds(form, codes), sums, layout_.v16, at, terms)) {
        return;
      }
      terms.Add(0, layout_.v16, kR, sums, layout_.v16);
      for (size_t r = 0; r < kR; ++r) {
        StoreOutput(args_, form.requant, sums + r * layout_.v16, codes[r],
                    at + static_cast<int64_t>(r) * args_.o_strides.row);
      }
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
