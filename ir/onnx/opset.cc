#include "octavo/ir/onnx/opset.h"

#include <algorithm>

#include "octavo/ir/functions.h"

namespace octavo::ir::onnx {

namespace {

// since_version of the form that ops.def states, where it is younger than 18 (the op, not its wider types).
int64_t SinceVersion(const Graph& g, const Node& n) {
  const auto dtype = [&](size_t i) { return n.input(i).valid() ? g.value(n.input(i)).type.dtype : DType::kUndefined; };
  switch (n.op) {
    case Op::kGelu:
      return 20;
    case Op::kGroupNormalization:
      return 21;  // scale and bias per channel; opset 18 had them per group
    case Op::kAttention:
      return n.inputs.size() > 6 ? 24 : 23;
    case Op::kRMSNormalization:
    case Op::kRotaryEmbedding:
      return 23;
    case Op::kSwish:
    case Op::kTensorScatter:
      return 24;
    case Op::kQuantizeLinear:
    case Op::kDequantizeLinear: {
      if (n.attrs.Has("precision")) return 23;
      if (n.attrs.Int("block_size", 0) != 0 || n.attrs.Has("output_dtype")) return 21;
      const bool wide_scale = dtype(1) != DType::kF32 && dtype(1) != DType::kUndefined;
      const DType q = n.op == Op::kQuantizeLinear ? dtype(2) : dtype(0);
      if (q == DType::kU16 || q == DType::kS16) return 21;
      return wide_scale ? 19 : kFormOpset;
    }
    case Op::kQuantizedSdpa:  // its body is content with 19; files have said 21 since 0.1.0, whose body moved codes of fp8
    case Op::kTranspose:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten:
      return quant::IsFp8(dtype(0)) ? 21 : kFormOpset;
    case Op::kIsNaN:
    case Op::kIsInf:
      return quant::IsFp8(dtype(0)) ? 20 : kFormOpset;
    case Op::kGridSample:
    case Op::kDFT:
    case Op::kAffineGrid:
    case Op::kStringConcat:
    case Op::kStringSplit:
      return 20;
    case Op::kBitCast:
    case Op::kCumProd:
      return 26;
    case Op::kCausalConvWithState:
    case Op::kLinearAttention:
      return 27;
    case Op::kSwiGLU:
      return 28;
    case Op::kDeformConv:
      return 19;
    case Op::kBitShift:
      return dtype(0) == DType::kS8 || dtype(0) == DType::kS16 || dtype(0) == DType::kS32 || dtype(0) == DType::kS64
                 ? 28
                 : kFormOpset;
    case Op::kSpaceToDepth:
      return n.attrs.Str("mode", "DCR") == "DCR" ? kFormOpset : 28;
    default:
      return kFormOpset;
  }
}

void AddType(DType t, Needs& needs) {
  const auto from = [&](int64_t opset, int64_t ir_version) {
    needs.opset = std::max(needs.opset, opset);
    needs.ir_version = std::max(needs.ir_version, ir_version);
  };
  if (quant::IsFp8(t) || t == DType::kE4M3FNUZ || t == DType::kE5M2FNUZ) from(19, 9);
  if (t == DType::kU4 || t == DType::kS4) from(21, 10);
  if (t == DType::kE2M1) from(23, 11);
  if (t == DType::kE8M0) from(24, 12);
  if (t == DType::kU2 || t == DType::kS2) from(25, 13);
}

void Collect(const Graph& g, Needs& needs) {
  for (ValueId v : g.inputs()) AddType(g.value(v).type.dtype, needs);
  for (NodeId id = g.first(); id.valid(); id = g.node(id).next) {
    const Node& n = g.node(id);
    needs.opset = std::max(needs.opset, SinceVersion(g, n));
    if (HasBody(n.op)) {
      // A node whose body cannot be made is refused by whoever writes it.
      if (const Result<Graph> body = BodyOf(g, n)) Collect(*body, needs);
    }
    for (ValueId v : n.outputs) {
      if (v.valid()) AddType(g.value(v).type.dtype, needs);
    }
    ForEachSubgraph(n, [&](const std::string&, const GraphRef& sub) { Collect(*sub, needs); });
  }
}

}  // namespace

Needs NeedsOf(const Graph& graph) {
  Needs needs;
  Collect(graph, needs);
  return needs;
}

bool UsesOctavo(const Graph& g) {
  bool uses = false;
  for (NodeId id = g.first(); id.valid() && !uses; id = g.node(id).next) {
    const Node& n = g.node(id);
    uses = HasBody(n.op);
    ForEachSubgraph(n, [&](const std::string&, const GraphRef& sub) { uses = uses || UsesOctavo(*sub); });
  }
  return uses;
}

void ForEachSubgraph(const Node& node, const std::function<void(const std::string&, const GraphRef&)>& visit) {
  for (const auto& [name, attr] : node.attrs.entries()) {
    if (const auto* sub = std::get_if<GraphRef>(&attr); sub != nullptr && *sub != nullptr) visit(name, *sub);
  }
}

}  // namespace octavo::ir::onnx
