// Convolutions of kernel 1: at each position a Linear over channels.
#ifndef OCTAVO_PASSES_POINTWISE_H_
#define OCTAVO_PASSES_POINTWISE_H_

#include "octavo/ir/graph.h"

namespace octavo::passes {

// Over every position (no stride, no padding), in one group, with constant weights of floats. With a bias it is constant and not of 16 bits, since a Conv
// rounds once and a product and a sum twice.
bool IsPointwise(const ir::Graph& g, const ir::Node& n);

// The weights [N,C,1,...] of such a convolution as the matrix [C,N] of a Linear.
ir::Tensor PointwiseMatrix(const ir::Tensor& w);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_POINTWISE_H_
