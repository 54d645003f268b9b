// Before: o = Sdpa(q, k, v, Where(And(key <= query [+ past], key > query - w, m), 0, low))          (QuantizedSdpa alike)
// After:  o = Sdpa(q, k, v, Where(m, 0, low)) {window_left, window_right, bottom_right, hidden_value = low}
// Also:   the bounds in a bool mask;  Where(Equal(Trilu(ones), 0), low, 0);  the sum of two such masks where low is -inf.
// The kernel leaves out what the window hides, and the mask keeps the shape of what is left, [B,1,1,Sk] or nothing.
// Exact for scores below 2^103, where s + low is low; hidden scores of infinity or NaN no longer reach their row.
// Refuses: other values of low (-10000 + s is no constant), and what window_bounds.h finds no bounds in. That looks through arithmetic on
// indices and not at a fixed shape: a pass and not a Rule.
#include <format>

#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/window_bounds.h"

namespace octavo::passes::fusions {

namespace {

ir::Dim LengthOf(const Graph& g, const Node& n, size_t slot, const char* rank) {
  const ir::SymShape* s = canonical::ShapeOf(g, n.input(slot));
  if (s == nullptr || static_cast<int64_t>(s->size()) != n.attrs.Int(rank, 4)) return {};
  return s->size() == 3 ? (*s)[1] : s->size() == 4 ? (*s)[2] : ir::Dim();
}

bool Lift(Rewriter& b, NodeId id, canonical::IndexFacts& facts) {
  Graph& g = b.graph();
  const Node n = g.node(id);
  const size_t mask = n.op == Op::kSdpa ? 3 : 13, keep = mask + 1;
  if (n.attrs.Int("window_left", -1) >= 0 || n.attrs.Int("window_right", -1) >= 0) return false;
  const ir::Dim queries = LengthOf(g, n, 0, "q_rank"), keys = LengthOf(g, n, 1, "k_rank");
  if (!queries.known() || !keys.known()) return false;
  b.At(id, {id});
  const bool in_keep = n.input(keep).valid();
  // Slopes join the sum that low has to swallow, and where masked scores become codes, hidden keys do not get low, but its code.
  const bool coded = n.op == Op::kQuantizedSdpa && n.input(ir::kSdpaMaskedCodes);
  if (!in_keep && (!n.input(mask) || n.input(mask + 2) || coded)) return false;
  const auto found = in_keep ? BoundsOfKeep(b, facts, queries, keys, n.input(keep))
                             : BoundsOfMask(b, facts, queries, keys, n.input(mask));
  if (!found) return false;
  std::vector<ValueId> in = n.inputs;
  in[in_keep ? keep : mask] = found->mask;
  while (!in.back().valid()) in.pop_back();
  ir::Attrs attrs = n.attrs;
  if (found->left >= 0) attrs.Set("window_left", found->left);
  if (found->right >= 0) attrs.Set("window_right", found->right);
  if (found->bottom_right) attrs.Set("bottom_right", int64_t{1});
  if (!in_keep) attrs.Set("hidden_value", found->low);
  const std::string name = g.value(n.output()).name;
  const ValueId made = b.Create(n.op, std::move(in), std::move(attrs));
  b.Replace(n.output(), made);
  b.EraseDead(id);
  g.SetName(made, name);
  return true;
}

}  // namespace

Result<bool> FuseWindows(Graph& graph, PassRun& run) {
  OCTAVO_TRY(const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter b(graph, "windows");
  canonical::IndexFacts facts(graph, inference);
  int lifted = 0;
  for (NodeId id : graph.NodesInOrder()) {
    const bool attends = graph.IsAlive(id) && (graph.node(id).op == Op::kSdpa || graph.node(id).op == Op::kQuantizedSdpa);
    if (attends && Lift(b, id, facts)) ++lifted;
  }
  if (lifted > 0)
    run.log.push_back(std::format("windows: {} causal or window masks became attributes of their attention", lifted));
  return b.changed();
}

}  // namespace octavo::passes::fusions
