// Before: Sdpa(q, k, v, ...)      After: Sdpa(q, k, v, ...) {flash = 1}
//         QuantizedSdpa(q, k, v, ...)         QuantizedSdpa(q, k, v, ...) {flash = 1}      (u8 and s8 operands)
// The kernel then needs no memory that grows with the keys. Float: rounding differs. int8: the probabilities are no longer
// quantized by the graph's numbers but relative to the running maximum (kernels/sdpa/sdpa.h has both, with bounds). So no recipe
// has this pass: it runs where a pipeline names it.
// Refuses: fp8 attention and scores that are quantized or divided, which have the exact form only.
#include <format>

#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::passes::fusions {

Result<bool> UseFlash(Graph& graph, PassRun& run) {
  Rewriter b(graph, "flash");
  int real = 0, int8 = 0, fp8 = 0, coded = 0;
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if ((n.op != Op::kSdpa && n.op != Op::kQuantizedSdpa) || n.attrs.Int("flash", 0) != 0) continue;
    if (n.op == Op::kQuantizedSdpa && quant::IsFp8(graph.value(n.input(0)).type.dtype)) {
      ++fp8;
      continue;
    }
    if (n.op == Op::kQuantizedSdpa && ir::HasScoreSteps(n)) {
      ++coded;
      continue;
    }
    ++(n.op == Op::kSdpa ? real : int8);
    b.SetAttr(id, "flash", int64_t{1});
  }
  if (real + int8 > 0) {
    run.log.push_back(std::format("flash: {} float and {} int8 attentions sum over tiles of keys", real, int8));
  }
  if (fp8 > 0) run.log.push_back(std::format("flash: {} fp8 attentions stay exact, since fp8 has no such form", fp8));
  if (coded > 0) {
    run.log.push_back(std::format(
        "flash: {} attentions whose scores are quantized or divided stay exact: flash has no such steps", coded));
  }
  return b.changed();
}

}  // namespace octavo::passes::fusions
