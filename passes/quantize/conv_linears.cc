// conv_linears: a convolution of kernel 1 over pictures or sequences is a Linear over channels, which the passes behind it quantize.
// Before: Conv(x [B,C,...], W [N,C,1,...], bias)
// After:  x -> Transpose [B,...,C] -> MatMul W^T -> Add bias -> Transpose [B,N,...]
// The runtime keeps the channels of connected convolutions last (runtime/channels_last.h), so the Transposes cost nothing there.
// Exact: the same products are summed in the same order, then the bias.
// Untouched: a convolution of one position (the gates of squeeze and excitation), where there are weights to read and nothing else; few channels.
#include <algorithm>
#include <numeric>

#include "octavo/passes/canonical/util.h"
#include "octavo/passes/pointwise.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

bool Pays(const Graph& g, const Node& n) {
  const Tensor& w = *g.ConstantOf(n.input(1));
  const ir::SymShape& x = *canonical::ShapeOf(g, n.input(0));
  const bool one = std::all_of(x.begin() + 2, x.end(), [](const ir::Dim& d) { return canonical::IsNumber(d, 1); });
  return w.dtype() == ir::DType::kF32 && !one && w.shape()[0] >= kLeastChannelsInCodes &&
         w.shape()[1] >= kLeastChannelsInCodes;
}

void ToLinear(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Tensor& w = *g.ConstantOf(n.input(1));
  const std::string name = g.value(n.input(1)).name;
  std::vector<int64_t> last(w.shape().size()), first(w.shape().size());
  std::iota(last.begin(), last.end(), 1), std::iota(first.begin(), first.end(), -1);
  last.front() = 0, last.back() = 1, first.front() = 0, first[1] = w.rank() - 1;
  rw.At(id, {id});
  const ValueId x = canonical::MakeTranspose(rw, n.input(0), last);
  ir::Type type = g.value(x).type;
  type.shape->back() = ir::Dim(w.shape()[0]);
  ValueId y = canonical::Make(rw, ir::Op::kMatMul, {x, rw.Constant(PointwiseMatrix(w), name + "_matrix")}, {}, type);
  if (n.input(2).valid()) y = canonical::Make(rw, ir::Op::kAdd, {y, n.input(2)}, {}, type);
  canonical::ReplaceNode(rw, id, canonical::MakeTranspose(rw, y, first));
}

}  // namespace

Result<bool> ConvLinears(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "conv_linears");
  for (const NodeId id : graph.NodesInOrder()) {
    if (IsPointwise(graph, graph.node(id)) && Pays(graph, graph.node(id))) ToLinear(rw, id);
  }
  return rw.changed();
}

}  // namespace octavo::passes::quantize
