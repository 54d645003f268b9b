// What ONNX Attention says (opset 23, 24): its heads, what of it has no counterpart in Sdpa, and its masks and caches in standard ops.
#ifndef OCTAVO_PASSES_FUSIONS_ONNX_ATTENTION_H_
#define OCTAVO_PASSES_FUSIONS_ONNX_ATTENTION_H_

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

struct Heads {
  int64_t rank = 0, heads = 0, dim = 0;
};
struct Operands {
  Heads q, k, v;
};
// 0 heads: not known.
Operands Describe(const Graph& g, const Node& attention);
pattern::Verdict CheckAttention(const Graph& g, const Node& attention);

// K or V [B,G,S,D] after what is cached of it; `present`, where something reads it, becomes the same.
ValueId WithPast(Rewriter& b, ValueId now, Heads* heads, ValueId past, ValueId present);
// What is added to the scores; invalid: nothing. `k` has the keys of the past.
ValueId AdditiveMask(Rewriter& b, const Node& attention, const Operands& o, ValueId k);
// true where key < valid (of the batch), or key <= query + valid - Sq: [B,1,1,Sk] or [B,1,Sq,Sk].
ValueId ValidKeys(Rewriter& b, const Node& attention, const Operands& o, ValueId k);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_ONNX_ATTENTION_H_
