// Convolutions of kernel 1: at each position a Linear over channels.
#ifndef OCTAVO_PASSES_POINTWISE_H_
#define OCTAVO_PASSES_POINTWISE_H_

#include "octavo/ir/graph.h"

namespace octavo::passes {

// Over every position (no stride, no padding), in one group, with constant weights of floats. With a bias it is constant and not of 16 bits, since a Conv
// rounds once and a product and a sum twice.
bool IsPointwise(const ir::Graph& g, const ir::Node& n);

// Channels and filters from which a product in codes pays: 64 x 64 on AVX2 take 0.84 of the time of floats with one scale for all positions, and 1.13 with a scale
// for each (docs/lab/runtime.md).
constexpr int64_t kLeastChannelsInCodes = 64;

// The weights [N,C,1,...] of such a convolution as the matrix [C,N] of a Linear.
ir::Tensor PointwiseMatrix(const ir::Tensor& w);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_POINTWISE_H_
