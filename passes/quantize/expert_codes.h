// Experts that a Gather takes out of one tensor, in the codes of a recipe: columns of a product with all of them (passes/expert_columns.h). They are not fitted to
// data: few activations are those of one expert. What has no such form stays for quantize_tables.
#ifndef OCTAVO_PASSES_QUANTIZE_EXPERT_CODES_H_
#define OCTAVO_PASSES_QUANTIZE_EXPERT_CODES_H_

#include "octavo/passes/quantize/rounding.h"

namespace octavo::passes::quantize {

// In blocks along what the product sums over, activations float.
Result<bool> ExpertBlocks(Graph& graph, PassRun& run, BlockFormat format);
// s8 with a scale for each column, activations quantized at run time a row.
Result<bool> ExpertTokens(Graph& graph, PassRun& run);
// The same with weights of 4 bits in steps (steps.h).
Result<bool> ExpertSteps(Graph& graph, PassRun& run);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_EXPERT_CODES_H_
