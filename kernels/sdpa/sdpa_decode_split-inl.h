// Decoding by several threads, the keys of a row split among them: what the float and the int8 form share. Per target.
//
// A softmax needs the maximum of a row before its exponentials, and their sum before its probabilities, so threads meet between
// steps. A score is the same wherever it is computed; the sum runs over all keys in the order of the contract, so every thread
// adds the row up by itself (a quarter of a cycle a key).
#if defined(OCTAVO_KERNELS_SDPA_SDPA_DECODE_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_DECODE_SPLIT_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_DECODE_SPLIT_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_DECODE_SPLIT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// What a part leaves for the steps after it: the keys of the group, which are not looked for twice, its maxima, and the sums of
// its codes (int8).
struct SplitHead {
  Span span;
  bool gone;  // no key outside the span counts
  float* max() { return reinterpret_cast<float*>(this + 1); }
  int32_t* codes(int64_t rows) { return reinterpret_cast<int32_t*>(max() + rows); }
};

struct Split {
  const internal::SdpaSplitLayout& layout;
  uint8_t* shared;
  SplitKvPart at;

  SplitHead& Head(int64_t part) const {
    return *reinterpret_cast<SplitHead*>(shared + static_cast<size_t>(part) * layout.head_stride);
  }
  // The keys of this part, in whole spans; may be none.
  Span Own() const {
    const Span& all = Head(at.part).span;
    const auto blocks = static_cast<int64_t>((all.padded - all.begin + 63) / 64);
    const auto cut = [&](int64_t part) { return all.begin + static_cast<size_t>(blocks * part / at.parts) * 64; };
    const size_t begin = cut(at.part), end = cut(at.part + 1);
    return {begin, HWY_MIN(end, all.end), HWY_MIN(end, all.padded), false};
  }
  float Max(size_t row) const {
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t p = 0; p < at.parts; ++p) max = Head(p).max()[row] > max ? Head(p).max()[row] : max;
    return max;
  }
};

// Products of one row to scores, as Softmax does it; their maximum.
template <bool kInt, class Args>
float ScoresOfPart(const Block<Args>& block, const ScoreRows& row, float factor, const Span& own) {
  const SdpaVisibility& see = block.args.visibility;
  RowSlots<float> max = {{-std::numeric_limits<float>::infinity()}};
  if (own.begin >= own.end) return max[0];
  const internal::KeyRange seen = internal::VisibleKeys(see.window, block.args.shape, block.row);
  const bool all = see.keep.data == nullptr && seen.begin <= static_cast<int64_t>(own.begin) &&
                   seen.end >= static_cast<int64_t>(own.end);
  if (all) {
    MaskedScores<1, kInt>(block, row, own.begin, own.end, factor, max);
  } else {
    VisibleScores<1, kInt>(block, row, factor, own, max);
  }
  return max[0];
}

inline void ExpOfPart(const Split& split, SdpaGuard guard, const ScoreRows& rows, size_t count) {
  const Span own = split.Own();
  for (size_t r = 0; r < count && own.begin < own.end; ++r) {
    const float max = StartOf(guard, split.Max(r));
    RowSlots<float> unused;
    ExpPass<1>(Part(rows.From(r), own.begin, own.end), &max, unused);
  }
}

// The sum of a row of exponentials, in the order of ExpPass.
inline float SumOfRow(const ScoreRows& row, const Span& span) {
  F16 total = Set16(0.0f);
  for (size_t i = span.begin; i < span.end; i += 16) total = Add16(total, Load16(row.Row(0) + i));
  return SumLanes(total);
}

// What Softmax returns, for one row.
template <class Args>
bool NoOtherKeyCounts(const Args& args, const Span& span, float max, float sum) {
  return span.whole || EndsAtZero(args) || IsGone(args, max, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
