// Convolutional graphs at random: few seeds of a campaign have more than one convolution, and what runs on images hangs on what stands beside it.
#ifndef OCTAVO_FUZZ_CONVOLUTIONS_H_
#define OCTAVO_FUZZ_CONVOLUTIONS_H_

#include <string>

#include "octavo/fuzz/random.h"

namespace octavo::fuzz {

// A small ONNX model of one to three spatial axes: convolutions, pools, norms of batches, Resize, activations, gates, sums and joins of channels,
// with operands and attributes that octavo serves and some that it refuses.
std::string RandomConvolutions(Random& random);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_CONVOLUTIONS_H_
