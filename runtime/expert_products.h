// Rows times the matrices of the experts that they were sent to, as exporters write it: Gather(W [E,a,b], index) -> MatMul. As one step it reads
// the weights of each chosen expert once, where they lie, instead of a copy for each row.
#ifndef OCTAVO_RUNTIME_EXPERT_PRODUCTS_H_
#define OCTAVO_RUNTIME_EXPERT_PRODUCTS_H_

#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

// Chains whose inputs are the rows and the index. W is a constant of f32, or of 16 bits or codes that a Cast makes floats; Transposes of the last two
// dims may stand between. Nobody else reads what stands between.
std::vector<Chain> FindExpertProducts(const CompileContext& c);

// Sums are in another order than those of the single nodes: within (K + 3) 2^-23 of the sum of |x w|. With codes the bits do not depend on the
// other rows or on threads.
KernelPtr MakeExpertProducts(const Chain& chain, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_EXPERT_PRODUCTS_H_
