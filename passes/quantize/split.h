// How the channels of an activation become columns that one scale suits (smooth.cc).
#ifndef OCTAVO_PASSES_QUANTIZE_SPLIT_H_
#define OCTAVO_PASSES_QUANTIZE_SPLIT_H_

#include <utility>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

struct Split {
  std::vector<int64_t> index;  // the channel of every column: all of them in order, then those that got more columns
  std::vector<float> divisor;  // of a channel: how much smaller each of its columns is
  std::vector<float>
      pressed;  // of a channel: what of the divisor its weights make up for; the rest is its number of columns

  bool nothing() const;  // every channel is one column as it was
  size_t more() const { return index.size() - divisor.size(); }
};

// The split after which the matrices [k,n] of `readers` have the least error, with activations in u8, one scale, and weights in codes up to
// weight_limit, a scale a column. A hundredth more columns, which cost as much time, must take away a tenth of it; at most four
// hundredths, none unless may_widen.
Split BestSplit(const ChannelStats& stats, const std::vector<const ir::Tensor*>& readers, bool may_widen,
                int weight_limit = 127);

// What the columns lie in, with some room for data that was not calibrated.
std::pair<float, float> RangeOf(const ChannelStats& stats, const Split& split);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_SPLIT_H_
