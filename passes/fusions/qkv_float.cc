// Before: q = MatMul(x, Wq) [+ bq]   k = MatMul(x, Wk) [+ bk]   v = MatMul(x, Wv) [+ bv]     that feed one attention
// After:  MatMul(x, [Wq|Wk|Wv]) [+ bias], Split into q, k, v          x is read once
// Float results differ at most by the order in which a GEMM sums: the columns are independent, so usually not at all. Where some
// have a bias and others none (Whisper's K), those get zeros, which change nothing but the sign of a zero.
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

bool IsWeightType(ir::DType t) { return t == ir::DType::kF32 || t == ir::DType::kF16 || t == ir::DType::kBF16; }

// Row by row the columns of all parts; a part that has no such tensor contributes zeros.
Tensor ConcatColumns(const std::vector<Projection>& parts, const Tensor* Projection::* which, ir::Shape shape) {
  const ir::DType dtype = parts[0].w->dtype();
  const size_t bytes = static_cast<size_t>(quant::BitsOf(dtype)) / 8;
  const int64_t rows = shape.size() == 2 ? shape[0] : 1;
  Tensor all = Tensor::Zeros(dtype, std::move(shape));
  auto* to = all.mutable_data();
  for (int64_t r = 0; r < rows; ++r) {
    for (const Projection& p : parts) {
      const size_t n = static_cast<size_t>(p.w->shape()[1]) * bytes;
      if (const Tensor* t = p.*which) std::memcpy(to, t->data() + static_cast<size_t>(r) * n, n);
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
    if (p.w == nullptr || p.w->rank() != 2 || !IsWeightType(p.w->dtype()) || p.w->dtype() != parts[0].w->dtype())
      return false;
    if (p.bias != nullptr && p.bias->dtype() != p.w->dtype()) return false;
    if (g.node(id).inputs[0] != g.node(parts[0].product).inputs[0]) return false;
  }
  std::vector<int64_t> sizes;
  for (const Projection& p : parts) sizes.push_back(p.w->shape()[1]);
  int64_t cols = 0;
  for (int64_t n : sizes) cols += n;
  const auto& x_shape = g.value(g.node(parts[0].product).inputs[0]).type.shape;
  if (!x_shape) return false;
  Rewriter b(g, "qkv_float");
  b.At(group.linears[0], group.linears);
  const ValueId w = b.Constant(ConcatColumns(parts, &Projection::w, {parts[0].w->shape()[0], cols}));
  ValueId y = b.Create(Op::kMatMul, {g.node(parts[0].product).inputs[0], w});
  const bool biased = std::any_of(parts.begin(), parts.end(), [](const Projection& p) { return p.bias != nullptr; });
  if (biased) y = b.Create(Op::kAdd, {y, b.Constant(ConcatColumns(parts, &Projection::bias, {cols}))});
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

Result<bool> FuseQkvFloat(Graph& graph, PassRun& run) {
  bool changed = false;
  for (const ProjectionGroup& group : FindProjectionGroups(graph)) {
    if (group.linears.size() < 2 || group.linears.size() > 8 || !Fuse(graph, group)) continue;
    changed = true;
    run.log.push_back("qkv_float: " + std::to_string(group.linears.size()) + " projections into one");
  }
  if (changed && !graph.SortTopologically()) return ir::Fail("qkv_float made a cycle");
  return changed;
}

}  // namespace octavo::passes::fusions
