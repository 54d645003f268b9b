// Which ids a model saw while it was calibrated, so that a run can tell those that it did not see.
#ifndef OCTAVO_QUANT_IDS_H_
#define OCTAVO_QUANT_IDS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/ir/interpret.h"

namespace octavo::quant {

// The least and the largest; empty at first.
struct IdRange {
  int64_t lo = std::numeric_limits<int64_t>::max(), hi = std::numeric_limits<int64_t>::min();
  void Add(const IdRange& other) { lo = std::min(lo, other.lo), hi = std::max(hi, other.hi); }
  bool empty() const { return lo > hi; }
  bool operator==(const IdRange&) const = default;
};
using IdRanges = std::map<std::string, IdRange>;  // by input

// Ids of a run: how many there are, how many lie below and above `range`, and what they reach themselves.
struct IdsSeen {
  int64_t count = 0, below = 0, above = 0;
  IdRange reach = {};
};
// Of the input of this name. Where the batch's mask (OnlyMask) has its shape, what it hides is padding and left out: it depends on how the batch was made.
IdsSeen LookAtIds(const ir::TensorMap& inputs, const std::string& name, const IdRange& range = {});

// {"input_ids": [101, 29612]}, [] where there was none, for files.
std::string ToText(const IdRanges& ranges);
// nullopt: the text is nothing of the kind.
std::optional<IdRanges> IdRangesOf(std::string_view text);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_IDS_H_
