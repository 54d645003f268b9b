// Before: q = MatMul(x, Wq) [+ bq]   k = MatMul(x, Wk) [+ bk]   v = MatMul(x, Wv) [+ bv]     that feed one attention
// After:  MatMul(x, [Wq|Wk|Wv]) [+ bias], Split into q, k, v          x is read once
// Float results differ at most by the order in which a GEMM sums: the columns are independent, so usually not at all. Where some
// have a bias and others none (Whisper's K), those get zeros, which change nothing but the sign of a zero.
// A choice over the whole graph of any number of branches: a pass and not a Rule.
#include <algorithm>

#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/projections.h"

namespace octavo::passes::fusions {

namespace {

bool Fuse(Graph& g, const ProjectionGroup& group) {
  std::vector<Projection> parts;
  std::vector<int64_t> sizes;
  for (NodeId id : group.linears) {
    const auto p = g.IsAlive(id) ? ProjectionAt(g, id) : std::nullopt;
    if (!p) return false;
    parts.push_back(*p);
    sizes.push_back(p->columns());
    if (p->w->dtype() != parts[0].w->dtype()) return false;
    if (g.node(id).inputs[0] != g.node(parts[0].product).inputs[0]) return false;
  }
  const ValueId x = g.node(parts[0].product).inputs[0];
  if (!g.value(x).type.shape) return false;
  const auto axis = static_cast<int64_t>(g.value(x).type.shape->size()) - 1;
  Rewriter b(g, "qkv_float");
  b.At(group.linears[0], group.linears);
  ValueId y = b.Create(Op::kMatMul, {x, b.Constant(WeightsOf(parts))});
  const bool biased = std::any_of(parts.begin(), parts.end(), [](const Projection& p) { return p.bias != nullptr; });
  if (biased) y = b.Create(Op::kAdd, {y, b.Constant(BiasesOf(parts))});
  const auto count = static_cast<int64_t>(sizes.size());
  const NodeId split =
      b.CreateN(Op::kSplit, {y, b.Constant(ir::Tensor::S64({count}, sizes))}, parts.size(), {{"axis", axis}});
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
