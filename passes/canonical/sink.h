// Reshapes that merge leading dims are moved below what does not see them.
#ifndef OCTAVO_PASSES_CANONICAL_SINK_H_
#define OCTAVO_PASSES_CANONICAL_SINK_H_

#include "octavo/passes/rewriter.h"

namespace octavo::passes::canonical {

// Before: z = op(Reshape(x [b,s,K] -> [b*s,K]), ...)   After: z = Reshape(op(x, ...))
// for MatMul (by a constant matrix, or with both operands reshaped alike), element-wise ops, Softmax,
// LayerNormalization. Part of `views`; true if the node was rewritten.
bool SinkReshape(Rewriter& rw, ir::NodeId node);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_SINK_H_
