// Before: q = MatMul(x, Wq) [+ bq]   k = MatMul(x, Wk) [+ bk]   v = MatMul(x, Wv) [+ bv]     that feed one attention
// After:  MatMul(x, [Wq|Wk|Wv]) [+ bias], Split into q, k, v          x is read once
// Float results differ at most by the order in which a GEMM sums: the columns are independent, so usually not at all.
#include <algorithm>
#include <cstring>

#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

namespace {

using ir::Tensor;

struct Projection {
  NodeId product;
  ValueId result;  // after the bias where there is one
  const Tensor* w;
  const Tensor* bias;  // null: none
};

Projection Describe(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  Projection p{id, n.output(), g.ConstantOf(n.inputs[1]), nullptr};
  if (!g.HasOneUse(p.result)) return p;
  const Node& user = g.node(g.value(p.result).uses[0].node);
  if (user.op != Op::kAdd) return p;
  const Tensor* bias = g.ConstantOf(user.inputs[1]);
  if (bias == nullptr || p.w == nullptr || bias->rank() != 1 || bias->size() != p.w->shape()[1]) return p;
  p.result = user.output();
  p.bias = bias;
  return p;
}

Tensor ConcatColumns(const std::vector<Projection>& parts, int64_t rows, int64_t cols) {
  Tensor all = Tensor::Empty(ir::DType::kF32, {rows, cols});
  float* to = all.mutable_as<float>().data();
  for (int64_t r = 0; r < rows; ++r) {
    for (const Projection& p : parts) {
      const int64_t n = p.w->shape()[1];
      std::memcpy(to, p.w->as<float>().data() + r * n, static_cast<size_t>(n) * sizeof(float));
      to += n;
    }
  }
  return all;
}

bool Fuse(Graph& g, const ProjectionGroup& group) {
  std::vector<Projection> parts;
  for (NodeId id : group.linears) {
    if (!g.IsAlive(id) || g.node(id).op != Op::kMatMul) return false;
    parts.push_back(Describe(g, id));
    const Projection& p = parts.back();
    if (p.w == nullptr || p.w->dtype() != ir::DType::kF32 || (p.bias == nullptr) != (parts[0].bias == nullptr)) return false;
    if (g.node(id).inputs[0] != g.node(parts[0].product).inputs[0]) return false;
  }
  std::vector<int64_t> sizes;
  std::vector<float> bias;
  for (const Projection& p : parts) {
    sizes.push_back(p.w->shape()[1]);
    if (p.bias != nullptr) bias.insert(bias.end(), p.bias->as<float>().begin(), p.bias->as<float>().end());
  }
  int64_t cols = 0;
  for (int64_t n : sizes) cols += n;
  const auto& x_shape = g.value(g.node(parts[0].product).inputs[0]).type.shape;
  if (!x_shape) return false;
  Rewriter b(g, "qkv_float");
  b.At(group.linears[0], group.linears);
  const ValueId w = b.Constant(ConcatColumns(parts, parts[0].w->shape()[0], cols));
  ValueId y = b.Create(Op::kMatMul, {g.node(parts[0].product).inputs[0], w});
  if (!bias.empty()) y = b.Create(Op::kAdd, {y, b.Constant(Tensor::F32({cols}, bias))});
  const auto count = static_cast<int64_t>(sizes.size());
  const NodeId split = b.CreateN(Op::kSplit, {y, b.Constant(Tensor::S64({count}, sizes))}, parts.size(),
                                 {{"axis", static_cast<int64_t>(x_shape->size()) - 1}});
  for (size_t i = 0; i < parts.size(); ++i) {
    const NodeId old = g.value(parts[i].result).producer;
    b.Replace(parts[i].result, g.node(split).output(i));
    b.EraseDead(old);
  }
  return true;
}

}  // namespace

Result<bool> FuseQkvFloat(Graph& graph, PassContext& context) {
  bool changed = false;
  for (const ProjectionGroup& group : FindProjectionGroups(graph)) {
    if (group.linears.size() < 2 || group.linears.size() > 8 || !Fuse(graph, group)) continue;
    changed = true;
    context.log.push_back("qkv_float: " + std::to_string(group.linears.size()) + " projections into one");
  }
  if (changed && !graph.SortTopologically()) return ir::Fail("qkv_float made a cycle");
  return changed;
}

}  // namespace octavo::passes::fusions
