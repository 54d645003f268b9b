// Before: Sdpa(q, k, v, ...)      After: Sdpa(q, k, v, ...) {flash = 1}
// The kernel then needs no memory that grows with the keys. Rounding differs (kernels/sdpa/sdpa.h), so no recipe has this pass:
// it runs where a pipeline names it. int8 attention stays exact: its probabilities are quantized where the graph says so.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

Result<bool> UseFlash(Graph& graph, PassContext& context) {
  Rewriter b(graph, "flash");
  int marked = 0;
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op != Op::kSdpa || n.attrs.Int("flash", 0) != 0) continue;
    b.SetAttr(id, "flash", int64_t{1});
    ++marked;
  }
  if (marked > 0) context.log.push_back("flash: " + std::to_string(marked) + " float attentions sum over tiles of keys");
  return b.changed();
}

}  // namespace octavo::passes::fusions
