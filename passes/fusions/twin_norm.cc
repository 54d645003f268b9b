// Before: y = SkipLayerNorm(x, skip, gamma, beta) or LayerNormalization;  _, q = NormQuant(x, skip, gamma', beta', ..)
// After:  y, q = NormQuant(x, skip, gamma, beta, .., gamma', beta')
// Exact: the same operations; sum, mean and deviation of the row are computed once. Smoothing makes such twins
// (passes/quantize/smooth.cc): what the residual reads has its own gamma.
// Refuses: another epsilon, a norm whose sum or mean is used. Siblings, not a tree: a pass and not a Rule.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

namespace {

struct Plain {
  NodeId id;
  ValueId gamma, beta;
};

// The norm beside `quantizing` that reads the same row.
std::optional<Plain> FindTwin(const Graph& g, const Node& quantizing) {
  const ValueId skip = quantizing.input(1);
  for (const ir::Use& use : g.value(quantizing.input(0)).uses) {
    const Node& n = g.node(use.node);
    const bool is_skip = n.op == Op::kSkipLayerNorm && skip && n.input(1) == skip && n.input(0) == quantizing.input(0);
    const bool is_plain = n.op == Op::kLayerNormalization && !skip && use.slot == 0 && n.attrs.Int("axis", -1) == -1;
    if ((!is_skip && !is_plain) || n.outputs.size() != 1) continue;
    if (n.attrs.Float("epsilon", 1e-5f) != quantizing.attrs.Float("epsilon", 1e-5f)) continue;
    const size_t gamma = is_skip ? 2 : 1;
    return Plain{use.node, n.input(gamma), n.input(gamma + 1)};
  }
  return std::nullopt;
}

}  // namespace

Result<bool> FuseTwinNorms(Graph& graph, PassContext& context) {
  int fused = 0;
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id) || graph.node(id).op != Op::kNormQuant) continue;
    const Node q = graph.node(id);
    if (q.outputs.empty() || q.outputs[0].valid() || q.input(6)) continue;
    const std::optional<Plain> twin = FindTwin(graph, q);
    if (!twin) continue;
    Rewriter b(graph, "twin_norm");
    b.At(graph.Before(id, twin->id) ? id : twin->id, {id, twin->id});
    std::vector<ValueId> inputs = q.inputs;
    inputs.resize(6);
    inputs.push_back(q.input(2));
    if (q.input(3)) inputs.push_back(q.input(3));
    inputs[2] = twin->gamma;
    inputs[3] = twin->beta;
    const NodeId made = b.CreateN(Op::kNormQuant, std::move(inputs), 2, q.attrs);
    const ValueId quantized = q.output(1);
    const ValueId plain = graph.node(twin->id).output();
    b.Replace(plain, graph.node(made).output(0));
    b.Replace(quantized, graph.node(made).output(1));
    b.EraseDead(twin->id);
    b.EraseDead(id);
    ++fused;
  }
  if (fused > 0) context.log.push_back("twin_norm: " + std::to_string(fused) + " pairs of norms of one sum");
  if (fused > 0 && !graph.SortTopologically()) return ir::Fail("twin_norm made a cycle");
  return fused > 0;
}

}  // namespace octavo::passes::fusions
