// From the products of a block of query rows to exponentials: scale, cap, slopes, masks, window, softmax. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_SOFTMAX_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_SOFTMAX_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_SOFTMAX_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/sdpa/sdpa_window.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// A block of up to kSdpaRows query rows of one head.
template <class Args>
struct Block {
  const Args& args;
  const internal::SdpaLayout& layout;
  const uint8_t* packed;
  uint8_t* scratch;
  int64_t batch, head, row;
};

// The keys that a block looks at: [begin, end), and [begin, padded) in whole panels.
struct Span {
  size_t begin, end, padded;
  bool whole;
};
HWY_INLINE Span MakeSpan(const SdpaShape& s, internal::KeyRange keys) {
  const auto all = static_cast<size_t>(s.k_len), end = static_cast<size_t>(keys.end);
  return {static_cast<size_t>(keys.begin), HWY_MIN(end, all), HWY_MIN(end, internal::RoundUp(all, 16)),
          keys.begin == 0 && end >= all};
}

HWY_INLINE ScoreRows Part(const ScoreRows& rows, size_t begin, size_t end) {
  return {rows.base + begin * sizeof(float), rows.stride, end - begin};
}

template <class Args>
HWY_INLINE MaskRows MaskOf(const Block<Args>& block, size_t first) {
  const SdpaMask& m = block.args.mask;
  if (m.data == nullptr) return {};
  const int64_t at = block.batch * m.batch + block.head * m.head + block.row * m.row;
  return {m.data + at + static_cast<int64_t>(first) * m.col, m.row, m.col};
}

template <size_t kR, bool kInt, bool kScale>
HWY_INLINE void Scores(const ScoreRows& rows, const MaskRows& mask, float factor, float scale, RowSlots<float>& max) {
  if (mask.data == nullptr) {
    ScorePass<kR, kInt, kScale, false>(rows, factor, scale, mask, max);
  } else {
    ScorePass<kR, kInt, kScale, true>(rows, factor, scale, mask, max);
  }
}

// A power of two that is not far from 1.
HWY_INLINE bool IsPlainPower(float x) {
  return x >= 0x1p-30f && x <= 0x1p30f && (std::bit_cast<uint32_t>(x) & 0x7FFFFF) == 0;
}

using IndexV = hwy::HWY_NAMESPACE::Vec<S32D>;
HWY_INLINE IndexV IndicesFrom(int64_t first) { return hwy::HWY_NAMESPACE::Iota(S32D(), static_cast<int32_t>(first)); }

// s = s + (slope * (key - position) + mask); `position` is that of the first row, `first` the first key.
template <size_t kR>
HWY_INLINE void AlibiPass(const ScoreRows& rows, int64_t first, int64_t position, float slope, const MaskRows& mask) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const F16V factor = hn::Set(d, slope);
  for (size_t r = 0; r < kR; ++r) {
    const float* add = mask.data == nullptr ? nullptr : mask.data + static_cast<int64_t>(r) * mask.row;
    for (size_t i = 0; i < rows.keys; i += kF16Lanes) {
      float* p = rows.Row(r) + i;
      const int64_t distance = first + static_cast<int64_t>(i) - position - static_cast<int64_t>(r);
      F16V bias = hn::Mul(factor, hn::ConvertTo(d, IndicesFrom(distance)));
      if (add != nullptr) {
        const F16V m = mask.col == 0 ? hn::Set(d, *add) : hn::LoadN(d, add + i, HWY_MIN(rows.keys - i, kF16Lanes));
        bias = hn::Add(bias, m);
      }
      hn::Store(hn::Add(hn::Load(d, p), bias), d, p);
    }
  }
}

// What integer sums are multiplied with. A scale that is a power of two joins the factor: it rounds nothing, and neither
// does the product.
struct ScoreScales {
  float factor, scale;

  HWY_INLINE ScoreScales(float of_codes, float of_scores) : factor(of_codes), scale(of_scores) {
    if (IsPlainPower(scale) && factor > 0x1p-60f && factor < 0x1p60f) {
      factor *= scale;
      scale = 1.0f;
    }
  }
};

// Scores, or probabilities, through codes and back.
template <size_t kR>
HWY_INLINE void CodesPass(const ScoreRows& rows, const SdpaScoreCodes& codes) {
  if (!codes.exist()) return;
  const RoundTrip trip = MakeRoundTrip(codes.scale, codes.zero_point, codes.type, codes.back());
  const auto each = [&](auto f) HWY_ATTR {
    for (size_t r = 0; r < kR; ++r) {
      float* p = rows.Row(r);
      for (size_t i = 0; i < rows.keys; i += 16) Store16(Map(f, Load16(p + i)), p + i);
    }
  };
  if (trip.to.divide) {
    each([&](F16V x) HWY_ATTR { return ThroughCodes<true>(F16D(), trip, x); });
  } else {
    each([&](F16V x) HWY_ATTR { return ThroughCodes<false>(F16D(), trip, x); });
  }
}

// MaskedScores where scores pass through codes, or are divided: a pass a step, over scores in L1. The last one sets anew
// what stands beyond the keys in between.
template <size_t kR>
HWY_NOINLINE void CodedScores(const Block<SdpaInt8Args>& block, const ScoreRows& rows, size_t begin, float factor,
                              RowSlots<float>& max) {
  const SdpaInt8Args& args = block.args;
  const SdpaVisibility& see = args.visibility;
  const MaskRows mask = MaskOf(block, begin);
  ScorePass<kR, true, false, false>(rows, factor, 1.0f, MaskRows{}, max);
  CodesPass<kR>(rows, args.product_codes);
  if (args.scale != 1.0f) ScorePass<kR, false, true, false>(rows, 1.0f, args.scale, MaskRows{}, max);
  for (size_t r = 0; args.divisor != 0.0f && r < kR; ++r) DividePass(rows, r, args.divisor);
  CodesPass<kR>(rows, args.scaled_codes);
  if (args.softcap != 0.0f) CapPass<kR>(rows, args.softcap);
  if (see.alibi != nullptr) {
    const int64_t position = block.row + internal::WindowOffset(see.window, args.shape);
    AlibiPass<kR>(rows, static_cast<int64_t>(begin), position, see.alibi[block.head], mask);
  } else if (mask.data != nullptr) {
    ScorePass<kR, false, false, true>(rows, 1.0f, 1.0f, mask, max);
  }
  CodesPass<kR>(rows, args.masked_codes);
  ScorePass<kR, false, false, false>(rows, 1.0f, 1.0f, MaskRows{}, max);
}

// Scores of the keys [begin, end) as if none were hidden. With a cap or slopes between scale and mask, the mask comes in
// a pass of its own.
template <size_t kR, bool kInt, class Args>
HWY_NOINLINE void MaskedScores(const Block<Args>& block, const ScoreRows& all, size_t begin, size_t end, float factor,
                               RowSlots<float>& max) {
  const ScoreRows rows = Part(all, begin, end);
  const SdpaVisibility& see = block.args.visibility;
  const float cap = block.args.softcap;
  float scale = block.args.scale;
  if constexpr (kInt) {
    if (block.args.HasScoreSteps()) return CodedScores<kR>(block, rows, begin, factor, max);
    const ScoreScales scales(factor, scale);
    factor = scales.factor, scale = scales.scale;
  }
  const MaskRows mask = MaskOf(block, begin);
  if (cap == 0.0f && see.alibi == nullptr) {
    if (scale == 1.0f) {
      Scores<kR, kInt, false>(rows, mask, factor, scale, max);
    } else {
      Scores<kR, kInt, true>(rows, mask, factor, scale, max);
    }
    return;
  }
  if (scale == 1.0f) {
    ScorePass<kR, kInt, false, false>(rows, factor, 1.0f, MaskRows{}, max);
  } else {
    ScorePass<kR, kInt, true, false>(rows, factor, scale, MaskRows{}, max);
  }
  if (cap != 0.0f) CapPass<kR>(rows, cap);
  if (see.alibi != nullptr) {
    const int64_t position = block.row + internal::WindowOffset(see.window, block.args.shape);
    AlibiPass<kR>(rows, static_cast<int64_t>(begin), position, see.alibi[block.head], mask);
    ScorePass<kR, false, false, false>(rows, 1.0f, 1.0f, MaskRows{}, max);
  } else {
    Scores<kR, false, false>(rows, mask, 1.0f, 1.0f, max);
  }
}

// The bool mask of kF16Lanes keys of a row.
HWY_INLINE hwy::HWY_NAMESPACE::Mask<S32D> Kept(const SdpaBoolMask& keep, int64_t row_at, int64_t key, int64_t keys) {
  namespace hn = hwy::HWY_NAMESPACE;
  const S32D d;
  const hn::Rebind<uint8_t, S32D> d8;
  const uint8_t* p = keep.data + row_at + key * keep.col;
  if (keep.col == 0) return hn::Ne(hn::Set(d, int32_t{*p}), hn::Zero(d));
  const int64_t rest = keys - key;
  if (rest <= 0) return hn::Ne(hn::Zero(d), hn::Zero(d));
  const auto bytes =
      rest >= static_cast<int64_t>(kF16Lanes) ? hn::LoadU(d8, p) : hn::LoadN(d8, p, static_cast<size_t>(rest));
  return hn::Ne(hn::PromoteTo(d, bytes), hn::Zero(d));
}

// Hidden keys get their score; max[r] anew. What lies beyond the keys stays -inf.
template <size_t kR, class Args>
HWY_NOINLINE void HidePass(const Block<Args>& block, const ScoreRows& rows, int64_t first, RowSlots<float>& max) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D di;
  const Args& args = block.args;
  const SdpaBoolMask& keep = args.visibility.keep;
  const int64_t keys = args.shape.k_len;
  const F16V low = hn::Set(d, -std::numeric_limits<float>::infinity());
  const F16V hidden = hn::Set(d, args.visibility.hidden_value);
  for (size_t r = 0; r < kR; ++r) {
    const int64_t row = block.row + static_cast<int64_t>(r);
    const internal::KeyRange see = internal::VisibleKeys(args.visibility.window, args.shape, row);
    const auto begin = hn::Set(di, static_cast<int32_t>(see.begin)), end = hn::Set(di, static_cast<int32_t>(see.end));
    const int64_t row_at = block.batch * keep.batch + block.head * keep.head + row * keep.row;
    F16V m = low;
    for (size_t i = 0; i < rows.keys; i += kF16Lanes) {
      const int64_t key = first + static_cast<int64_t>(i);
      const IndexV index = IndicesFrom(key);
      auto visible = hn::AndNot(hn::Lt(index, begin), hn::Lt(index, end));
      if (keep.data != nullptr) visible = hn::And(visible, Kept(keep, row_at, key, keys));
      const F16V rest =
          hn::IfThenElse(hn::RebindMask(d, hn::Lt(index, hn::Set(di, static_cast<int32_t>(keys)))), hidden, low);
      const F16V s = hn::IfThenElse(hn::RebindMask(d, visible), hn::Load(d, rows.Row(r) + i), rest);
      hn::Store(s, d, rows.Row(r) + i);
      m = hn::Max(s, m);
    }
    max[r] = MaxLane(OCTAVO_F16(m, m));
  }
}

// The keys of the span in up to three parts, of which the middle one is seen by every row.
template <size_t kR, bool kInt, class Args>
HWY_INLINE void VisibleScores(const Block<Args>& block, const ScoreRows& rows, float factor, const Span& span,
                              RowSlots<float>& max) {
  const SdpaVisibility& see = block.args.visibility;
  size_t cuts[2] = {span.end, span.end};
  if (see.keep.data == nullptr) {
    const internal::KeyRange common =
        internal::CommonKeys(see.window, block.args.shape, block.row, static_cast<int64_t>(kR));
    const size_t begin = HWY_MAX(internal::RoundUp(static_cast<size_t>(common.begin), 16), span.begin);
    const size_t end = common.end >= block.args.shape.k_len ? span.end : static_cast<size_t>(common.end) / 16 * 16;
    if (begin < end && end <= span.end) cuts[0] = begin, cuts[1] = end;
  }
  for (size_t r = 0; r < kR; ++r) max[r] = -std::numeric_limits<float>::infinity();
  size_t from = span.begin;
  for (int part = 0; part < 3; ++part) {
    const size_t to = part < 2 ? cuts[part] : span.end;
    if (to > from) {
      RowSlots<float> part_max;
      MaskedScores<kR, kInt>(block, rows, from, to, factor, part_max);
      if (part != 1) HidePass<kR>(block, Part(rows, from, to), static_cast<int64_t>(from), part_max);
      for (size_t r = 0; r < kR; ++r) max[r] = part_max[r] > max[r] ? part_max[r] : max[r];
    }
    from = to;
  }
}

// Where the exponentials of a row start from. Those of a row of nothing but -inf are 0 with kMasked, and so is their sum; with a NaN
// among the scores it is NaN.
HWY_INLINE float StartOf(SdpaGuard guard, float max) {
  return guard == SdpaGuard::kMasked && max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
}
// What they are divided by: that row has probabilities of 0.
HWY_INLINE float DivisorOf(SdpaGuard guard, float sum) {
  return guard == SdpaGuard::kMasked && sum == 0.0f ? 1.0f : sum;
}

// A guarded row without meaning is 0 at every key.
template <class Args>
HWY_INLINE bool EndsAtZero(const Args& args) {
  return args.guard == SdpaGuard::kNan && args.visibility.hidden_value == -std::numeric_limits<float>::infinity();
}
// Keys that are hidden from a row have a probability of 0.
template <class Args>
HWY_INLINE bool IsGone(const Args& args, float max, float sum) {
  constexpr float kGone = 128.0f;  // Exp(-kGone) is 0 (quant::constants::kExpMin)
  const float hidden = args.visibility.hidden_value;
  const bool masked = args.guard == SdpaGuard::kMasked && max == hidden && std::isinf(hidden);
  return (max - hidden > kGone || masked) && sum == sum;
}

// Scores with their maxima to exponentials and their sums. False: a key outside the span would not have been 0.
template <size_t kR, class Args>
HWY_INLINE bool Exponentials(const Block<Args>& block, const ScoreRows& rows, const RowSlots<float>& max,
                             const Span& span, RowSlots<float>& sum) {
  const ScoreRows part = Part(rows, span.begin, span.end);
  if (block.args.guard == SdpaGuard::kMasked) {
    RowSlots<float> start;
    for (size_t r = 0; r < kR; ++r) start[r] = StartOf(block.args.guard, max[r]);
    ExpPass<kR>(part, start.at, sum);
    for (size_t r = 0; r < kR; ++r) sum[r] = DivisorOf(block.args.guard, sum[r]);
  } else {
    ExpPass<kR>(part, max.at, sum);
  }
  if (span.whole || EndsAtZero(block.args)) return true;
  bool gone = true;
  for (size_t r = 0; r < kR; ++r) gone = gone && IsGone(block.args, max[r], sum[r]);
  return gone;
}

// Products of kR rows to scores, and their maxima.
template <size_t kR, bool kInt, class Args>
HWY_INLINE void ScoresOfSpan(const Block<Args>& block, const ScoreRows& rows, float factor, const Span& span,
                             RowSlots<float>& max) {
  const SdpaVisibility& see = block.args.visibility;
  if (!internal::HasWindow(see.window) && see.keep.data == nullptr) {
    MaskedScores<kR, kInt>(block, rows, span.begin, span.end, factor, max);
  } else {
    VisibleScores<kR, kInt>(block, rows, factor, span, max);
  }
}

// Products of kR rows to exponentials and their sums. False as above.
template <size_t kR, bool kInt, class Args>
HWY_INLINE bool Softmax(const Block<Args>& block, const ScoreRows& rows, float factor, const Span& span,
                        RowSlots<float>& sum) {
  RowSlots<float> max;
  ScoresOfSpan<kR, kInt>(block, rows, factor, span, max);
  return Exponentials<kR>(block, rows, max, span, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
