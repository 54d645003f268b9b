// Rotary embeddings as exporters write them, as one step with the bits of their nodes: x * cos + turned(x) * sin, where pairs of columns
// lie half of them apart, Concat(-x[half:], x[:half]), or side by side, and perhaps columns behind that a Concat puts back as they are.
#ifndef OCTAVO_RUNTIME_ROTARY_CHAIN_H_
#define OCTAVO_RUNTIME_ROTARY_CHAIN_H_

#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

// Chains whose inputs are x of rank 4, cos and sin. Nobody else reads what stands between.
std::vector<Chain> FindRotaryChains(const CompileContext& c);

KernelPtr MakeRotaryChain(const Chain& chain, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ROTARY_CHAIN_H_
