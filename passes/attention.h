// Analysis: where the attention cores and their projections are, whatever has been done to them so far. Read-only; used
// by the groupings (which Linears belong together) and by the report (what was found, what became of it).
#ifndef OCTAVO_PASSES_ATTENTION_H_
#define OCTAVO_PASSES_ATTENTION_H_

#include <optional>
#include <string>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes {

// One softmax(q k^T) v, decomposed or already one node.
struct AttentionCore {
  NodeId center;      // the Softmax, or the fused / standard / vendor attention node
  ValueId q, k, v;    // operands as they enter the core (k possibly transposed)
  NodeId product_qk;  // invalid for fused nodes
  NodeId product_pv;
};

// MatMul with a constant rank-2 right operand (possibly behind DequantizeLinear), Gemm with constant B, QuantizedLinear.
bool IsLinear(const Graph& graph, const Node& node);
// The node is an attention op of octavo, of ONNX or of com.microsoft.
bool IsAttentionOp(const Node& node);

// Scores or probabilities [b,h,s,s] before each head got a weighted sum of all (talking heads): v is Transpose(Linear(Transpose(x))) or a convolution of
// kernel 1. Invalid: v is something else.
ValueId BeforeMixedHeads(const Graph& graph, ValueId v);

// In order of the graph.
std::vector<AttentionCore> FindAttentionCores(const Graph& graph);

// The Linears that a core's operand comes from, through views, rotary embeddings, norms of q and k, caches, Q/DQ.
std::vector<NodeId> LinearsBehind(const Graph& graph, ValueId operand);

// A view, selection or scale, behind which the channels of a projection are still that.
bool KeepsChannels(const Graph& graph, const Node& node);
// The convolution that an operand comes from, through such nodes alone; invalid: none.
NodeId ConvBehind(const Graph& graph, ValueId operand);

// Projections of one core that read the same activation: the Linears of q, k and v, of k and v alone (cross-attention), or of two others.
// A core has several where its operands are put together from several activations: text and picture of one joint attention.
struct ProjectionGroup {
  AttentionCore core;
  std::string kind;             // "qkv", "kv", "qk", "qv": of which operands
  ValueId activation;           // what they read (before Q/DQ)
  std::vector<NodeId> linears;  // distinct, in graph order; one: packed, as QKV or KV
};
std::vector<ProjectionGroup> FindProjectionGroups(const Graph& graph);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_ATTENTION_H_
