// dce: dead code.
// Before: a node none of whose results is used or a graph output   After: nothing
// Graph inputs stay, used or not: they are the model's signature. Optional second outputs that nobody wants (the mean
// of a LayerNormalization, the mask of a Dropout) become absent.
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

// Result i, not the first.
bool MayBeLeftOut(Op op, size_t i) {
  if (const ir::Operand* own = ir::ResultsOf(op).At(i)) return own->optional;
  return op == Op::kLayerNormalization || op == Op::kDropout || op == Op::kMaxPool || op == Op::kAttention;
}

}  // namespace

Result<bool> Dce(Graph& graph, PassRun&) {
  std::vector<bool> is_output(graph.value_capacity(), false);
  for (const ir::GraphOutput& o : graph.outputs()) {
    if (o.value.valid()) is_output[o.value.index] = true;
  }
  const auto wanted = [&](ValueId v) { return v.valid() && (!graph.value(v).uses.empty() || is_output[v.index]); };
  bool changed = false;
  const std::vector<NodeId> order = graph.NodesInOrder();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& n = graph.node(*it);
    bool used = n.outputs.empty();  // a node without results is there for something we do not see
    for (ValueId v : n.outputs) used = used || wanted(v);
    if (!used) {
      graph.Erase(*it);
      changed = true;
      continue;
    }
    for (size_t i = 1; i < n.outputs.size(); ++i) {
      if (n.outputs[i].valid() && MayBeLeftOut(n.op, i) && !wanted(n.outputs[i])) {
        graph.DropOutput(*it, i);
        changed = true;
      }
    }
  }
  return changed;
}

}  // namespace octavo::passes::canonical
