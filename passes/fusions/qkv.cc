// Before: q = QuantizedLinear(x, wq, ..)  k = QuantizedLinear(x, wk, ..)  v = QuantizedLinear(x, wv, ..)     that feed one attention
// After:  q, k, v = QuantizedQkv(x, [wq ..], [wk ..], [wv ..])          x is read once, each branch keeps its own scales
// Exact: the body of QuantizedQkv is the body of the branches. Any widths (GQA), 2 to 8 branches of one core of attention: a choice over the whole
// graph, and so a pass and not a Rule.
#include <algorithm>

#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

namespace {

// The branches of one attention core that read the same activation with the same parameters.
std::vector<NodeId> BranchesOf(const Graph& g, const AttentionCore& core) {
  std::vector<NodeId> branches;
  for (ValueId operand : {core.q, core.k, core.v}) {
    for (NodeId id : LinearsBehind(g, operand)) {
      const Node& n = g.node(id);
      if (n.op != Op::kQuantizedLinear || n.attrs.Str("activation", "none") != "none" || n.input(8) || n.input(9)) continue;
      if (std::find(branches.begin(), branches.end(), id) == branches.end()) branches.push_back(id);
    }
  }
  return branches;
}

void Fuse(Graph& g, const std::vector<NodeId>& branches) {
  const NodeId first = *std::ranges::min_element(branches, [&g](NodeId a, NodeId b) { return g.Before(a, b); });
  Rewriter b(g, "quantized_qkv");
  b.At(first, branches);
  const Node& head = g.node(branches[0]);
  std::vector<ValueId> inputs{head.input(0), head.input(1), head.input(2)};
  for (NodeId id : branches) {
    for (size_t slot = 3; slot < 8; ++slot) inputs.push_back(g.node(id).input(slot));
  }
  while (!inputs.back().valid()) inputs.pop_back();
  ir::Attrs attrs;  // one scale a row goes with the activation
  if (head.attrs.Int("per_token", 0) != 0) attrs.Set("per_token", int64_t{1});
  const NodeId made = b.CreateN(Op::kQuantizedQkv, std::move(inputs), branches.size(), std::move(attrs));
  for (size_t i = 0; i < branches.size(); ++i) {
    b.Replace(g.node(branches[i]).output(), g.node(made).output(i));
    b.EraseDead(branches[i]);
  }
}

}  // namespace

Result<bool> FuseQuantizedQkv(Graph& graph, PassRun& run) {
  OCTAVO_TRY(bool changed, pattern::ApplyRules(PackedRules(), graph, run));
  for (const AttentionCore& core : FindAttentionCores(graph)) {
    // Branches by activation: self-attention has one set, cross-attention one for q and one for k and v.
    std::vector<std::vector<NodeId>> sets;
    for (NodeId id : BranchesOf(graph, core)) {
      const auto it = std::ranges::find_if(sets, [&, &n = graph.node(id)](const std::vector<NodeId>& s) {
        return graph.node(s[0]).input(0) == n.input(0) && SameParams(graph, graph.node(s[0]), n);
      });
      it == sets.end() ? sets.push_back({id}) : it->push_back(id);
    }
    for (const std::vector<NodeId>& set : sets) {
      if (set.size() < 2 || set.size() > 8) continue;
      Fuse(graph, set);
      changed = true;
      run.log.push_back("quantized_qkv: " + std::to_string(set.size()) + " projections into one");
    }
  }
  if (changed && !graph.SortTopologically()) return ir::Fail("quantized_qkv made a cycle");
  return changed;
}

}  // namespace octavo::passes::fusions
