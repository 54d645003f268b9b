// Rotary embedding as exporters write it, x * cos + Concat(-x[half:], x[:half]) * sin, as one step with the bits of its seven nodes.
#ifndef OCTAVO_RUNTIME_ROTATE_HALF_H_
#define OCTAVO_RUNTIME_ROTATE_HALF_H_

#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

// Chains whose inputs are x [B,H,S,D], cos and sin. Nobody else reads what stands between.
std::vector<Chain> FindRotateHalves(const CompileContext& c);

KernelPtr MakeRotateHalf(const Chain& chain, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ROTATE_HALF_H_
