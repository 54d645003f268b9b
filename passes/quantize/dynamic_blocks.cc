// dynamic_blocks: products with weights in blocks quantize their rows at run time, one scale a block of a row.
// Before: y = LinearBlocked(x, w, ...)
// After:  y = LinearBlocked(x, w, ...; x_bits = 8)
// Off by at most half a step of each block, max|x| / 254, times the sum of |w|; where weights have 4 bits their own rounding is
// larger. Several times as fast: the kernel multiplies codes instead of decoding weights to floats (kernels/DESIGN.md).
// Left, with a line in the log: blocks longer than the kernel sums exactly.
#include "octavo/kernels/catalog.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/steps_of_blocks.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

Result<bool> DynamicBlocks(Graph& graph, PassRun& run) {
  bool in_steps = false;
  if (run.Option("steps", false)) {
    OCTAVO_TRY(in_steps, StepsOfBlocks(graph, run));
  }
  Rewriter b(graph, "dynamic_blocks");
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op != Op::kLinearBlocked || n.attrs.Int("x_bits", 0) == 8) continue;
    const kernels::Choice choice = kernels::ChooseBlocked(
        {.w = graph.value(n.input(1)).type.dtype, .block = n.attrs.Int("block_size", 0), .x_bits = 8},
        kernels::Arch::kScalar);
    if (!choice.ok()) {
      run.Leave("dynamic_blocks", n, "keeps float activations: " + choice.refusal);
      continue;
    }
    b.SetAttr(id, "x_bits", int64_t{8});
  }
  return b.changed() || in_steps;
}

}  // namespace octavo::passes::quantize
