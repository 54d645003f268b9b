// The canonical passes: graphs of different exporters are brought to one form, so that fusion rules stay few.
// Each keeps the meaning of the graph bit for bit, except `scale`, `scores`, `means`, `row_norms`, `softmax_axis`, `renormalized`, `turned`,
// `einsum`, `expert_loops`, `probabilities`, `mixtures` and `widen`, which say what they cost.
// Each runs to its own fixed point: a second run of the same pass on its result changes nothing.
// What the forms look like: README.md in this folder.
#ifndef OCTAVO_PASSES_CANONICAL_CANONICAL_H_
#define OCTAVO_PASSES_CANONICAL_CANONICAL_H_

#include <span>

#include "octavo/passes/pass.h"

namespace octavo::passes::canonical {

// Constants are evaluated, shape chains end in constant targets, nodes that do nothing go, `If` on a constant is
// inlined.
Result<bool> Fold(Graph& graph, PassRun& run);
// Nodes that compute the same thing from the same inputs become one.
Result<bool> Cse(Graph& graph, PassRun& run);
// Nodes whose results nobody wants are erased.
Result<bool> Dce(Graph& graph, PassRun& run);
// Chains of Reshape, Transpose, Squeeze, Unsqueeze, Flatten: splits first, then one Transpose, then merges.
Result<bool> Views(Graph& graph, PassRun& run);
// Gemm, transposed weights, bias in front: MatMul(x, W[K,N]) then Add(., bias[N]).
Result<bool> Linear(Graph& graph, PassRun& run);
// QuantizeLinear moves up across views, DequantizeLinear down.
Result<bool> Qdq(Graph& graph, PassRun& run);
// Masks are computed at their smallest shape, and what is always true is not computed.
Result<bool> Masks(Graph& graph, PassRun& run);
// Einsum of two operands becomes MatMul. Not bit-exact: see einsum.cc.
Result<bool> Einsum(Graph& graph, PassRun& run);
// Products by a constant of one matrix for each expert or head become Linears.
Result<bool> ExpertLinears(Graph& graph, PassRun& run);
// Sums over experts of nodes of their own become products with the matrices of the chosen. Not bit-exact: see expert_loops.cc.
Result<bool> ExpertLoops(Graph& graph, PassRun& run);
// Heads that are repeated by Tile, Concat or Gather are repeated by Unsqueeze, Expand, Reshape.
Result<bool> Repeat(Graph& graph, PassRun& run);
// Convolutions of kernel 1 before and behind attention become Linears.
Result<bool> Pointwise(Graph& graph, PassRun& run);
// Pads that a convolution takes from its sizes are numbers.
Result<bool> AutoPads(Graph& graph, PassRun& run);
// Q, K and V that are packed along an axis of their own become slices of the packed projection.
Result<bool> Packed(Graph& graph, PassRun& run);
// Attention in f16 or bf16 is computed in f32 between Casts. Not bit-exact: see widen.cc.
Result<bool> Widen(Graph& graph, PassRun& run);
// A mean over the last axis of three is a ReduceMean. Not bit-exact: it may sum in another order.
Result<bool> Means(Graph& graph, PassRun& run);
// Norms of rows in another shape, with a guard or with a variance in double are chains over the last axis. Not bit-exact: see row_norms.cc.
Result<bool> RowNorms(Graph& graph, PassRun& run);
// A Softmax of attention scores is computed over their last axis. Not bit-exact: it may sum in another order.
Result<bool> SoftmaxAxis(Graph& graph, PassRun& run);
Result<bool> Renormalized(Graph& graph, PassRun& run);
// Products of attention that were computed transposed are computed the other way round. Not bit-exact: a product may sum in another order.
Result<bool> Turned(Graph& graph, PassRun& run);
// Scales on Q and K become one multiply on the scores. Not bit-exact: see scale.cc.
Result<bool> Scale(Graph& graph, PassRun& run);
// Changes of the probabilities after the Softmax are moved away. Not bit-exact: see probabilities.cc.
Result<bool> Probabilities(Graph& graph, PassRun& run);
// Products of sums of probabilities are sums of products. Not bit-exact: see mixtures.cc.
Result<bool> Mixtures(Graph& graph, PassRun& run);
// Scores are multiplied, capped, masked once each, in that order. Not bit-exact: see scores.cc.
Result<bool> Scores(Graph& graph, PassRun& run);

// Attention of any rank and through any views as products of rank 4. Not bit-exact where each head has a scale: see cores.cc.
Result<bool> Cores(Graph& graph, PassRun& run);

// The passes above in the order in which they help each other.
const std::vector<std::shared_ptr<const Pass>>& CanonicalPasses();
// All of them in that order, again and again until none changes anything.
Result<bool> Canonicalize(Graph& graph, PassRun& run);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_CANONICAL_H_
