// Rotary embedding as exporters write it, x * cos + Concat(-x[half:], x[:half]) * sin, as one step with the bits of its seven nodes.
#ifndef OCTAVO_RUNTIME_ROTATE_HALF_H_
#define OCTAVO_RUNTIME_ROTATE_HALF_H_

#include <array>
#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

// Chains whose inputs are x [B,H,S,D], cos and sin. Nobody else reads what stands between.
std::vector<Chain> FindRotateHalves(const CompileContext& c);

// One line of x.
void RotateHalf(const float* x, const float* cos, const float* sin, int64_t dim, float* y);
// Where the row of the line [b, h, s] lies in a table that broadcasts.
std::array<int64_t, 3> TableStrides(const Tensor& table);

KernelPtr MakeRotateHalf(const Chain& chain, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ROTATE_HALF_H_
