// A tensor that is broadcast to one shape, as one that is broadcast to another shape of the same elements in the same order.
// scores [b*4,h,s,s] seen as [b,4,h,s,s] plus a mask [1,4,1,s,s]   ->   scores plus a mask [b*4,1,s,s]
#ifndef OCTAVO_PASSES_CANONICAL_REGROUP_H_
#define OCTAVO_PASSES_CANONICAL_REGROUP_H_

#include <optional>
#include <vector>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

// How to do it: an Expand (empty: none), then a Reshape (both shapes of the tensor itself, dims of 1 where it is broadcast).
struct Regrouping {
  SymShape padded;    // the tensor's shape with dims of 1 in front, of the rank of `from`
  SymShape expanded;  // padded, but for dims that must be written out
  SymShape to;
};
// from: what the tensor is broadcast to now; to: what it shall be broadcast to. Nothing where their dims cannot be matched, or where a dim that must be
// written out cannot be read at run time.
std::optional<Regrouping> RegroupingOf(const Graph& g, ValueId tensor, const SymShape& from, const SymShape& to);
ValueId Regroup(Rewriter& rw, ValueId tensor, const Regrouping& how);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_REGROUP_H_
