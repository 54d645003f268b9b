#include "octavo/passes/fusions/probability_codes.h"

#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using ir::Tensor;

NodeId SoftmaxOf(const Graph& g, ValueId p) {
  const Node* n = g.Producer(p);
  if (n != nullptr && n->op == Op::kWhere) {
    p = n->input(2);
    const Node* is_nan = g.Producer(n->input(0));
    const Tensor* instead = g.ConstantOf(n->input(1));
    if (instead == nullptr || instead->size() != 1 || instead->GetDouble(0) != 0) return {};
    n = is_nan != nullptr && is_nan->op == Op::kIsNaN && is_nan->input(0) == p ? g.Producer(p) : nullptr;
  }
  const auto& shape = g.value(p).type.shape;
  if (n == nullptr || n->op != Op::kSoftmax || !shape) return {};
  const int64_t axis = n->attrs.Int("axis", -1), rank = static_cast<int64_t>(shape->size());
  return axis == -1 || axis == rank - 1 ? g.value(p).producer : NodeId{};
}

bool HasPlainCodes(const Graph& g, const Node& q) {
  if (g.value(q.output()).type.dtype != ir::DType::kU8 || !HasScalarParams(g, q)) return false;
  const Tensor* zero = g.ConstantOf(q.input(2));
  return g.ConstantOf(q.input(1))->GetDouble(0) == 1 / 255.0f && zero != nullptr && zero->GetInt(0) == 0;
}

NodeId ProductOf(const Graph& g, const Node& q) {
  if (!g.HasOneUse(q.output()) || g.IsGraphOutput(q.output())) return {};
  const Node& dq = g.node(g.value(q.output()).uses[0].node);
  if (dq.op != Op::kDequantizeLinear || !g.HasOneUse(dq.output()) || g.IsGraphOutput(dq.output())) return {};
  const ir::Use use = g.value(dq.output()).uses[0];
  return g.node(use.node).op == Op::kMatMul && use.slot == 0 ? use.node : NodeId{};
}

}  // namespace octavo::passes::fusions
