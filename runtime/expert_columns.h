// Rows times the columns of the experts that they were sent to, out of a product with those of all, as octavo writes it (passes/expert_columns.h):
//   LinearBlocked(x, [K, E N]) -> Reshape [..,E,N] -> GatherND(index)        or QuantizedLinear with per_token
// As one step it reads and multiplies the columns of the chosen experts alone; the bits are those of the single nodes.
#ifndef OCTAVO_RUNTIME_EXPERT_COLUMNS_H_
#define OCTAVO_RUNTIME_EXPERT_COLUMNS_H_

#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

// Chains whose inputs are the product's operands by row, and the index. Nobody else reads what stands between.
std::vector<Chain> FindExpertColumns(const CompileContext& c);

KernelPtr MakeExpertColumns(const Chain& chain, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_EXPERT_COLUMNS_H_
