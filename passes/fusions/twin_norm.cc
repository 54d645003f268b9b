// Before: y, s = SkipLayerNorm(x, skip, gamma, beta) or a plain norm;  _, q = NormQuant(x, skip, gamma', beta', ..)
// After:  y, q, s = NormQuant(x, skip, gamma, beta, .., gamma', beta'); what nobody reads is left out
// Exact: the same operations; sum, mean and deviation of the row are computed once. Smoothing makes such twins
// (passes/quantize/smooth.cc): what the residual reads has its own gamma.
// Refuses: another epsilon, a norm whose mean is used. Siblings, not a tree: a pass and not a Rule.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

namespace {

bool IsWanted(const Graph& g, ValueId v) { return v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v)); }

bool IsTwin(const Graph& g, const Node& n, const Node& quantizing) {
  if (n.input(0) != quantizing.input(0) || n.attrs.Float("epsilon", 1e-5f) != quantizing.attrs.Float("epsilon", 1e-5f))
    return false;
  const bool rms = quantizing.attrs.Int("rms", 0) != 0;
  if (n.op == Op::kSkipLayerNorm) {
    return quantizing.input(1) && n.input(1) == quantizing.input(1) && (n.attrs.Int("rms", 0) != 0) == rms;
  }
  if (quantizing.input(1) || n.op != (rms ? Op::kRMSNormalization : Op::kLayerNormalization)) return false;
  for (size_t i = 1; i < n.outputs.size(); ++i) {
    if (IsWanted(g, n.outputs[i])) return false;
  }
  return n.attrs.Int("axis", -1) == -1;
}

NodeId FindTwin(const Graph& g, const Node& quantizing) {
  for (const ir::Use& use : g.value(quantizing.input(0)).uses) {
    if (use.slot == 0 && IsTwin(g, g.node(use.node), quantizing)) return use.node;
  }
  return {};
}

void Fuse(Rewriter& b, NodeId id, NodeId twin_id) {
  Graph& g = b.graph();
  const Node q = g.node(id), twin = g.node(twin_id);
  b.At(g.Before(id, twin_id) ? id : twin_id, {id, twin_id});
  const size_t gamma = twin.op == Op::kSkipLayerNorm ? 2 : 1;
  const ValueId sum = twin.op == Op::kSkipLayerNorm ? twin.output(1) : ValueId{};
  const bool keeps_y = IsWanted(g, twin.output());
  const bool keeps_sum = IsWanted(g, sum);
  std::vector<ValueId> inputs = q.inputs;
  inputs.resize(6);
  if (keeps_y) {
    inputs.push_back(q.input(2));
    if (q.input(3)) inputs.push_back(q.input(3));
    inputs[2] = twin.input(gamma);
    inputs[3] = q.attrs.Int("rms", 0) != 0 ? ValueId{} : twin.input(gamma + 1);
  }
  const NodeId made = b.CreateN(Op::kNormQuant, std::move(inputs), keeps_sum ? 3 : 2, q.attrs);
  if (keeps_y) {
    b.Replace(twin.output(), g.node(made).output(0));
  } else {
    g.DropOutput(made, 0);
  }
  b.Replace(q.output(1), g.node(made).output(1));
  if (keeps_sum) b.Replace(sum, g.node(made).output(2));
  b.EraseDead(twin_id);
  b.EraseDead(id);
}

}  // namespace

Result<bool> FuseTwinNorms(Graph& graph, PassRun& run) {
  int fused = 0;
  Rewriter b(graph, "twin_norm");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id) || graph.node(id).op != Op::kNormQuant) continue;
    const Node& q = graph.node(id);
    if (q.output(0).valid() || q.output(2).valid() || q.input(6)) continue;
    const NodeId twin = FindTwin(graph, q);
    if (!twin.valid()) continue;
    Fuse(b, id, twin);
    ++fused;
  }
  if (fused > 0) run.log.push_back("twin_norm: " + std::to_string(fused) + " pairs of norms of one sum");
  if (fused > 0 && !graph.SortTopologically()) return ir::Fail("twin_norm made a cycle");
  return fused > 0;
}

}  // namespace octavo::passes::fusions
