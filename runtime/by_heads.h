// Products that write their outputs by heads: a Reshape to [B,S,H,D] and a Transpose to [B,H,S,D] behind QuantizedLinear, QuantizedQkv or LinearBlocked
// (what exporters write before a KV cache or a rotary embedding) are no steps, the product stores there at once.
#ifndef OCTAVO_RUNTIME_BY_HEADS_H_
#define OCTAVO_RUNTIME_BY_HEADS_H_

#include <optional>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

struct ByHeads {
  int64_t heads = 0, size = 0;
  ir::NodeId reshape, transpose;  // served by the product; nobody else reads what lies between

  int64_t columns() const { return heads * size; }
};

// The shape of an output of n columns for an activation of this shape, [B,S,K] where there are heads, and strides and heads of `y`.
Shape PlaceOutput(const std::optional<ByHeads>& by_heads, const Shape& x, int64_t n, kernels::GemmOutput* y);

// The only node that reads v, as its data, if it is of this kind and v does not leave the graph; else null.
const Node* OnlyReader(const Graph& g, ValueId v, Op op, ir::NodeId* id);
// Heads and their size where a Reshape makes [B,S,H,D] of [B,S,n].
std::optional<ByHeads> HeadsOf(const Graph& g, ValueId from, ValueId to);

// Output `i` of a QuantizedLinear, QuantizedQkv or LinearBlocked; none where it is read otherwise, or the node adds a residual.
std::optional<ByHeads> FindByHeads(const Graph& g, const Node& node, size_t i);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_BY_HEADS_H_
