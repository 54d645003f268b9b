// Before opset 13, Softmax(axis) normalized over all axes from `axis` on, as if they were one. That is a softmax over
// the last axis where `axis` is the last one (all that exporters write); else the axes are flattened, which is exact.
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/typed.h"

namespace octavo::ir::onnx {

namespace {

void Flattened(Graph& g, NodeId id, int64_t axis) {
  const ValueId x = g.node(id).input(0);
  const ValueId y = g.node(id).output();
  const std::string name = g.value(y).name;
  const std::vector<std::string> origin = g.node(id).origin;
  const NodeId flatten = g.AddNode(Op::kFlatten, {x}, 1, {{"axis", axis}}, {}, id);
  const NodeId shape = g.AddNode(Op::kShape, {x}, 1, {}, {}, id);
  const NodeId reshape = g.AddNode(Op::kReshape, {}, 1, {}, {}, g.node(id).next);
  const ValueId result = g.node(reshape).output();
  g.ReplaceAllUses(y, result);
  g.SetInput(id, 0, g.node(flatten).output());
  g.SetInput(reshape, 0, y);
  g.SetInput(reshape, 1, g.node(shape).output());
  g.SetName(y, name + "/flat");
  g.SetName(result, name);
  g.SetName(g.node(flatten).output(), name + "/flat_in");
  g.SetName(g.node(shape).output(), name + "/shape");
  g.SetType(result, g.value(y).type);
  g.SetType(y, {g.value(y).type.dtype, std::nullopt});
  for (NodeId made : {flatten, shape, reshape}) g.SetOrigin(made, origin);
}

}  // namespace

void ResolveSoftmax(Graph& g) {
  std::vector<NodeId> pending;
  for (NodeId id = g.first(); id.valid(); id = g.node(id).next) {
    if (g.node(id).attrs.Has(kFlattenSoftmax)) pending.push_back(id);
  }
  if (pending.empty()) return;
  const Graph typed = Typed(g);  // ranks that a file declares may be missing or false
  for (NodeId id : pending) {
    const auto& shape = typed.value(g.node(id).input(0)).type.shape;
    const int64_t axis = g.node(id).attrs.Int("axis", 1);
    g.EraseAttr(id, kFlattenSoftmax);
    g.SetAttr(id, "axis", int64_t{-1});
    const auto rank = shape ? static_cast<int64_t>(shape->size()) : -1;
    if (axis != -1 && (rank < 0 || (axis != rank - 1 && rank != 0))) Flattened(g, id, axis);
  }
}

}  // namespace octavo::ir::onnx
