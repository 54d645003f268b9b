// Before: q = MatMul(x, Wq) [+ bq]   k = MatMul(x, Wk) [+ bk]   v = MatMul(x, Wv) [+ bv]     that feed one attention, or two of them
// After:  MatMul(x, [Wq|Wk|Wv]) [+ bias], Split into q, k, v          x is read once
// Float results differ at most by the order in which a GEMM sums: the columns are independent, so usually not at all. Where some have a bias and
// others none (Whisper's K), those get zeros, which change nothing but the sign of a zero. A choice over the whole graph: a pass and not a Rule.
#include <algorithm>
#include <format>
#include <map>

#include "octavo/passes/fusions/projections.h"

namespace octavo::passes::fusions {

namespace {

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
  const std::vector<ProjectionGroup> groups = FindProjectionGroups(graph);
  std::map<NodeId, size_t> most;  // Linears that one can be merged with: two attentions may read one k and v
  for (const ProjectionGroup& group : groups) {
    std::vector<Projection> parts;
    if (!WhyNotOneProduct(graph, group, &parts).empty()) continue;
    for (NodeId id : group.linears) most[id] = std::max(most[id], group.linears.size());
  }
  for (const ProjectionGroup& group : groups) {
    const bool elsewhere = std::ranges::any_of(
        group.linears, [&](NodeId id) { return !graph.IsAlive(id) || most[id] > group.linears.size(); });
    if (elsewhere || group.linears.size() < 2) continue;  // with another attention; packed
    std::vector<Projection> parts;
    const std::string why = WhyNotOneProduct(graph, group, &parts);
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
