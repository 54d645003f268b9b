// Parts of the pass `fold`; each takes a live node and says whether it rewrote it.
#ifndef OCTAVO_PASSES_CANONICAL_FOLD_H_
#define OCTAVO_PASSES_CANONICAL_FOLD_H_

#include "octavo/ir/infer.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

// Before: y = Add(Constant a, Constant b)   After: y = Constant        (fold.cc)
bool FoldConstants(Rewriter& rw, NodeId node);
// Before: y = Gather(Shape(x), 1), known to be [7]   After: y = Constant [7]
bool FoldContents(Rewriter& rw, NodeId node, const ir::Inference& inference);

// A node that hands its input on unchanged: that input; invalid: it does something   (fold_noop.cc)
ValueId UnchangedInput(const Graph& g, const Node& node);
// CastLike -> Cast; Cast(Cast(x)) -> Cast(x) where the inner one loses nothing; empty inputs of Concat dropped
bool SimplifyCastOrConcat(Rewriter& rw, NodeId node);

// Reshape and Expand get constant targets where the symbolic dims allow   (fold_shapes.cc)
bool FoldReshapeTarget(Rewriter& rw, NodeId node);
bool FoldExpandTarget(Rewriter& rw, NodeId node);
// Before: Gather(Shape(deep inside the graph), 1), known to be "seq"   After: the same dim of a graph input
bool RootShapeAtInput(Rewriter& rw, NodeId node, const ir::Inference& inference);

// A dim of a Reshape target that is read from where x's own dim comes from becomes a copy   (fold_dims.cc)
bool FoldCopiedDims(Rewriter& rw, NodeId node);

// Before: y = If(Constant true, captures...)   After: the nodes of then_branch   (fold_if.cc)
bool InlineIf(Rewriter& rw, NodeId node);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_FOLD_H_
