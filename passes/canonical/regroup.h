// A tensor that is broadcast to one shape, as one that is broadcast to another shape of the same elements in the same order.
// scores [b*4,h,s,s] seen as [b,4,h,s,s] plus a mask [1,4,1,s,s]   ->   scores plus a mask [b*4,1,s,s]
#ifndef OCTAVO_PASSES_CANONICAL_REGROUP_H_
#define OCTAVO_PASSES_CANONICAL_REGROUP_H_

#include <optional>
#include <span>
#include <vector>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

// How to do it: an Expand, then a Reshape (both shapes of the tensor itself, dims of 1 where it is broadcast), then Gathers.
struct Regrouping {
  SymShape padded;    // the tensor's shape with dims of 1 in front, of the rank of `from`
  SymShape expanded;  // padded, but for dims that must be written out
  SymShape to;
  std::vector<size_t> repeated;  // axes of `to` along which the tensor is then repeated as often as it takes
};
// from: what the tensor is broadcast to now; to: what it shall be broadcast to; views of each other. Nothing where their dims cannot be matched, or where a
// dim that must be written out cannot be read at run time.
std::optional<Regrouping> RegroupingOf(const Graph& g, ValueId tensor, const SymShape& from, const SymShape& to);
// Whether that size can be told at run time: a number, or a size of a graph input or, at the same axis, of one of `like`.
bool CanRead(const Graph& g, const SymShape& to, size_t axis, std::span<const ValueId> like);
// v, whose shape is `now` behind dims of 1, broadcast to `to`. CanRead told of the dims that `now` has not got.
ValueId ExpandTo(Rewriter& rw, ValueId v, const SymShape& now, const SymShape& to, std::span<const ValueId> like = {});
// like: a value that the tensor shall be broadcast to, but for its last dims.
ValueId Regroup(Rewriter& rw, ValueId tensor, const Regrouping& how, ValueId like);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_REGROUP_H_
