// conv_linears: a convolution over pictures or sequences is a Linear over the channels of its windows, which the passes behind it quantize.
// Before: Conv(x [B,C,...], W [N,C,kernel...], bias)
// After:  x -> Transpose [B,...,C] -> windows [B,out...,positions * C] -> MatMul W^T -> Add bias -> Transpose [B,N,out...]
// Windows are a Pad, a Slice for each position and a Concat (ir/unfold.h); kernel 1 without stride needs none of them.
// The runtime keeps the channels of connected convolutions last (runtime/channels_last.h), so the Transposes cost nothing there, and makes windows of codes
// in one step.
// Exact for kernel 1: the same products are summed in the same order, then the bias. Other kernels sum channels before positions.
// Untouched: a convolution of one position (the gates of squeeze and excitation), where there are weights to read and nothing else; few channels; large windows.
#include <algorithm>
#include <numeric>

#include "octavo/passes/canonical/util.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/unfold.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

bool IsOnePosition(const ir::SymShape& shape) {
  return std::all_of(shape.begin() + 2, shape.end(), [](const ir::Dim& d) { return canonical::IsNumber(d, 1); });
}

std::optional<ir::Windows> ThatPay(const Graph& g, const Node& n) {
  std::optional<ir::Windows> windows = WindowsOf(g, n);
  if (!windows || windows->positions() > kMostPositionsInCodes) return {};
  const Tensor& w = *g.ConstantOf(n.input(1));
  if (IsOnePosition(*canonical::ShapeOf(g, n.input(0))) || IsOnePosition(*canonical::ShapeOf(g, n.output()))) return {};
  const bool many = w.shape()[0] >= kLeastChannelsInCodes && w.shape()[1] >= kLeastChannelsInCodes;
  return w.dtype() == ir::DType::kF32 && many ? windows : std::nullopt;
}

void ToLinear(Rewriter& rw, NodeId id, const ir::Windows& windows) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Tensor& w = *g.ConstantOf(n.input(1));
  const std::string name = g.value(n.input(1)).name;
  std::vector<int64_t> last(w.shape().size()), first(w.shape().size());
  std::iota(last.begin(), last.end(), 1), std::iota(first.begin(), first.end(), -1);
  last.front() = 0, last.back() = 1, first.front() = 0, first[1] = w.rank() - 1;
  const ir::SymShape& result = *canonical::ShapeOf(g, n.output());
  const ir::SymShape out(result.begin() + 2, result.end());
  rw.At(id, {id});
  const ValueId x = MakeUnfold(rw, canonical::MakeTranspose(rw, n.input(0), last), windows, {}, out);
  ir::Type type = g.value(x).type;
  type.shape->back() = ir::Dim(w.shape()[0]);
  ValueId y = canonical::Make(rw, ir::Op::kMatMul, {x, rw.Constant(WindowMatrix(w), name + "_matrix")}, {}, type);
  if (n.input(2).valid()) y = canonical::Make(rw, ir::Op::kAdd, {y, n.input(2)}, {}, type);
  canonical::ReplaceNode(rw, id, canonical::MakeTranspose(rw, y, first));
}

}  // namespace

Result<bool> ConvLinears(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "conv_linears");
  for (const NodeId id : graph.NodesInOrder()) {
    if (const std::optional<ir::Windows> windows = ThatPay(graph, graph.node(id))) ToLinear(rw, id, *windows);
  }
  return rw.changed();
}

}  // namespace octavo::passes::quantize
