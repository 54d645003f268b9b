// Before: q = MatMul(x, Wq) [+ bq]   k = MatMul(x, Wk) [+ bk]   v = MatMul(x, Wv) [+ bv]     that feed one attention, or two of them
// After:  MatMul(x, [Wq|Wk|Wv]) [+ bias], Split into q, k, v          x is read once
// Float results differ at most by the order in which a GEMM sums: the columns are independent, so usually not at all. Where some have a bias and
// others none (Whisper's K), those get zeros, which change nothing but the sign of a zero. A choice over the whole graph: a pass and not a Rule.
#include <algorithm>
#include <format>

#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/projections.h"

namespace octavo::passes::fusions {

namespace {

// Empty, or why these are not one product.
std::string WhyNot(const Graph& g, const ProjectionGroup& group, std::vector<Projection>* parts) {
  const size_t count = group.linears.size();
  if (count > 8) return std::format("is one of {} projections of one attention, and at most 8 are merged", count);
  const ValueId x = g.node(group.linears[0]).inputs[0];
  for (NodeId id : group.linears) {
    const auto p = ProjectionAt(g, id);
    const std::string other = OriginName(g.node(id));
    if (!p) return std::format("is not merged: the weight or bias of '{}' is no constant of floats", other);
    parts->push_back(*p);
    if (p->w->dtype() != (*parts)[0].w->dtype() || g.node(id).inputs[0] != x)
      return std::format("is not merged: '{}' reads another form of the activation", other);
  }
  return g.value(x).type.shape ? "" : "is not merged: the rank of what it reads is not known";
}

void Fuse(Graph& g, const std::vector<NodeId>& linears, const std::vector<Projection>& parts) {
  std::vector<int64_t> sizes;
  for (const Projection& p : parts) sizes.push_back(p.columns());
  const ValueId x = g.node(parts[0].product).inputs[0];
  const auto axis = static_cast<int64_t>(g.value(x).type.shape->size()) - 1, count = std::ssize(sizes);
  Rewriter b(g, "qkv_float");
  b.At(linears[0], linears);
  ValueId y = b.Create(Op::kMatMul, {x, b.Constant(WeightsOf(parts))});
  const bool biased = std::any_of(parts.begin(), parts.end(), [](const Projection& p) { return p.bias != nullptr; });
  if (biased) y = b.Create(Op::kAdd, {y, b.Constant(BiasesOf(parts))});
  const NodeId split =
      b.CreateN(Op::kSplit, {y, b.Constant(ir::Tensor::S64({count}, sizes))}, parts.size(), {{"axis", axis}});
  for (size_t i = 0; i < parts.size(); ++i) {
    const NodeId old = g.value(parts[i].result).producer;
    b.Replace(parts[i].result, g.node(split).output(i));
    b.EraseDead(old);
  }
}

}  // namespace

Result<bool> FuseQkvFloat(Graph& graph, PassRun& run) {
  bool changed = false;
  for (const ProjectionGroup& group : FindProjectionGroups(graph)) {
    const bool merged = std::ranges::any_of(group.linears, [&](NodeId id) { return !graph.IsAlive(id); });
    if (merged || group.linears.size() < 2) continue;  // with another attention; packed
    std::vector<Projection> parts;
    const std::string why = WhyNot(graph, group, &parts);
    if (why.empty()) {
      Fuse(graph, group.linears, parts);
      run.log.push_back(std::format("qkv_float: {} projections into one", parts.size())), changed = true;
    } else {
      run.Leave("qkv_float", graph.node(group.linears[0]), why);
    }
  }
  if (changed && !graph.SortTopologically()) return ir::Fail("qkv_float made a cycle");
  return changed;
}

}  // namespace octavo::passes::fusions
