// Before: q = QuantizedLinear(x, wq, ..)  k = QuantizedLinear(x, wk, ..)  v = QuantizedLinear(x, wv, ..)     that feed one attention
// After:  q, k, v = QuantizedQkv(x, [wq ..], [wk ..], [wv ..])          x is read once, each branch keeps its own scales
// Exact: the body of QuantizedQkv is the body of the branches. 2 to 8 of one core, of any widths (GQA): a choice over the whole graph, and so a pass and
// not a Rule. What qkv_packed.cc has taken apart, as for a rotary embedding of some columns, brings its branches.
#include <algorithm>

#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

namespace {

// Operands of a QuantizedQkv: three of the activation, five of each branch. A QuantizedLinear's are those of one.
constexpr size_t kFirstBranch = 3, kBranch = 5, kMostBranches = 8;

bool IsProjection(const Node& n) {
  if (n.op != Op::kQuantizedLinear) return n.op == Op::kQuantizedQkv;
  return n.attrs.Str("activation", "none") == "none" && n.inputs.size() <= kFirstBranch + kBranch;
}

// What projects for one core of attention, by activation: self-attention has one set, cross-attention one for q and one for k and v.
std::vector<std::vector<NodeId>> ProjectionsOf(const Graph& g, const AttentionCore& core) {
  std::vector<std::vector<NodeId>> sets;
  for (ValueId operand : {core.q, core.k, core.v}) {
    for (NodeId id : LinearsBehind(g, operand)) {
      const auto known = [id](const auto& s) { return std::ranges::find(s, id) != s.end(); };
      if (!IsProjection(g.node(id)) || std::ranges::any_of(sets, known)) continue;
      const auto it = std::ranges::find_if(sets, [&, &n = g.node(id)](const std::vector<NodeId>& s) {
        return g.node(s[0]).input(0) == n.input(0) && SameParams(g, g.node(s[0]), n);
      });
      it == sets.end() ? sets.push_back({id}) : it->push_back(id);
    }
  }
  return sets;
}

bool Fuse(Graph& g, const std::vector<NodeId>& set) {
  const Node& head = g.node(set[0]);
  std::vector<ValueId> inputs{head.input(0), head.input(1), head.input(2)}, outputs;
  for (NodeId id : set) {
    const Node& n = g.node(id);
    for (size_t i = 0; i < kBranch * n.outputs.size(); ++i) inputs.push_back(n.input(kFirstBranch + i));
    outputs.insert(outputs.end(), n.outputs.begin(), n.outputs.end());
  }
  if (set.size() < 2 || outputs.size() > kMostBranches) return false;
  while (!inputs.back().valid()) inputs.pop_back();
  Rewriter b(g, "quantized_qkv");
  b.At(*std::ranges::min_element(set, [&g](NodeId x, NodeId y) { return g.Before(x, y); }), set);
  ir::Attrs attrs;  // one scale a row goes with the activation
  if (head.attrs.Int("per_token", 0) != 0) attrs.Set("per_token", int64_t{1});
  const NodeId made = b.CreateN(Op::kQuantizedQkv, std::move(inputs), outputs.size(), std::move(attrs));
  for (size_t i = 0; i < outputs.size(); ++i) b.Replace(outputs[i], g.node(made).output(i));
  for (NodeId id : set) b.EraseDead(id);
  return true;
}

}  // namespace

Result<bool> FuseQuantizedQkv(Graph& graph, PassRun& run) {
  OCTAVO_TRY(bool changed, pattern::ApplyRules(PackedRules(), graph, run));
  for (const AttentionCore& core : FindAttentionCores(graph)) {
    for (const std::vector<NodeId>& set : ProjectionsOf(graph, core)) changed = Fuse(graph, set) || changed;
  }
  if (changed && !graph.SortTopologically()) return ir::Fail("quantized_qkv made a cycle");
  return changed;
}

}  // namespace octavo::passes::fusions
