#include "octavo/ir/onnx/fp8_views.h"

#include <algorithm>

#include "octavo/ir/onnx/opset.h"

namespace octavo::ir::onnx {

namespace {

DType TypeOf(const Graph& g, ValueId v) { return v.valid() ? g.value(v).type.dtype : DType::kUndefined; }

bool IsMove(Op op) {
  switch (op) {
    case Op::kExpand:
    case Op::kSlice:
    case Op::kSplit:
    case Op::kConcat:
    case Op::kGather:
    case Op::kShape:  // allowed by ONNX from here on; ONNX Runtime 1.31 has no kernels of fp8 for them
    case Op::kSize:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
      return true;
    default:
      return false;
  }
}

bool Moves(const Graph& g, const Node& n) { return IsMove(n.op) && quant::IsFp8(TypeOf(g, n.input(0))); }

// The fp8 value that v is in f32, or none.
ValueId Narrow(const Graph& g, ValueId v) {
  const Node* cast = v.valid() ? g.Producer(v) : nullptr;
  const bool widens = cast != nullptr && cast->op == Op::kCast && TypeOf(g, v) == DType::kF32;
  return widens && quant::IsFp8(TypeOf(g, cast->input(0))) ? cast->input(0) : ValueId{};
}

// Whether all that reads v makes `fp8` of it, without saturation.
bool IsNarrowed(const Graph& g, ValueId v, DType fp8) {
  return !g.IsGraphOutput(v) && std::ranges::all_of(g.value(v).uses, [&](const Use& use) {
    const Node& n = g.node(use.node);
    return n.op == Op::kCast && TypeOf(g, n.output()) == fp8 && n.attrs.Int("saturate", 1) == 0;
  });
}

}  // namespace

bool MovesFp8(const Graph& graph) {
  for (NodeId id = graph.first(); id.valid(); id = graph.node(id).next) {
    bool moves = Moves(graph, graph.node(id));
    ForEachSubgraph(graph.node(id), [&](const std::string&, const GraphRef& sub) { moves = moves || MovesFp8(*sub); });
    if (moves) return true;
  }
  return false;
}

void CastMovedFp8(Graph& graph) {
  for (NodeId id : graph.NodesInOrder()) {
    const Node n = graph.node(id);  // a copy: the store grows
    ForEachSubgraph(n, [&](const std::string& name, const GraphRef& sub) {
      if (!MovesFp8(*sub)) return;
      Graph cast = *sub;
      CastMovedFp8(cast);
      graph.SetAttr(id, name, std::make_shared<const Graph>(std::move(cast)));
    });
    if (!Moves(graph, n)) continue;
    const DType fp8 = TypeOf(graph, n.input(0));
    const auto add = [&](Op op, std::vector<ValueId> in, size_t count, ir::Attrs attrs) {
      const NodeId made = graph.AddNode(op, std::move(in), count, std::move(attrs), n.name, id);
      graph.SetOrigin(made, n.origin);
      return made;
    };
    std::vector<ValueId> inputs = n.inputs;
    for (ValueId& v : inputs) {
      if (TypeOf(graph, v) != fp8) continue;
      const Type type{DType::kF32, graph.value(v).type.shape};
      v = graph.node(add(Op::kCast, {v}, 1, {{"to", static_cast<int64_t>(DType::kF32)}})).output();
      graph.SetType(v, type);
    }
    const NodeId moved = add(n.op, std::move(inputs), n.outputs.size(), n.attrs);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId from = n.outputs[i];
      if (!from.valid()) {
        graph.DropOutput(moved, i);
        continue;
      }
      const Type type = graph.value(from).type;
      const ValueId wide = graph.node(moved).outputs[i];
      if (type.dtype != fp8) {  // a shape
        graph.SetType(wide, type);
        graph.ReplaceAllUses(from, wide);
        continue;
      }
      graph.SetType(wide, Type{DType::kF32, type.shape});
      // Not saturating: infinities stay what they are.
      const NodeId back = add(Op::kCast, {wide}, 1, {{"saturate", int64_t{0}}, {"to", static_cast<int64_t>(fp8)}});
      graph.SetType(graph.node(back).output(), type);
      graph.ReplaceAllUses(from, graph.node(back).output());
    }
    graph.Erase(id);
  }
}

void UncastMovedFp8(Graph& graph) {
  for (const NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    const Node n = graph.node(id);
    const ValueId first = IsMove(n.op) ? Narrow(graph, n.input(0)) : ValueId{};
    if (!first.valid()) continue;
    const DType fp8 = TypeOf(graph, first);
    const auto is_done = [&](ValueId v) {
      return !v.valid() || TypeOf(graph, v) != DType::kF32 || IsNarrowed(graph, v, fp8);
    };
    std::vector<ValueId> inputs = n.inputs;
    bool all = std::ranges::all_of(n.outputs, is_done);
    for (ValueId& v : inputs) {
      if (TypeOf(graph, v) != DType::kF32) continue;
      v = Narrow(graph, v);
      all = all && TypeOf(graph, v) == fp8;
    }
    if (!all) continue;
    for (size_t i = 0; i < inputs.size(); ++i) graph.SetInput(id, i, inputs[i]);
    for (const ValueId v : n.outputs) {
      if (TypeOf(graph, v) != DType::kF32) continue;
      graph.SetType(v, Type{fp8, graph.value(v).type.shape});
      const std::vector<Use> uses = graph.value(v).uses;
      for (const Use& use : uses) {
        graph.ReplaceAllUses(graph.node(use.node).output(), v);
        graph.Erase(use.node);
      }
    }
    for (const ValueId v : n.inputs) {
      const NodeId cast = v.valid() ? graph.value(v).producer : NodeId{};
      if (cast.valid() && graph.node(cast).op == Op::kCast && graph.value(v).uses.empty() && !graph.IsGraphOutput(v))
        graph.Erase(cast);
    }
  }
}

}  // namespace octavo::ir::onnx
