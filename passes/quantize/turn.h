// Orthogonal matrices that spread each channel over many: signs and Hadamard's butterflies, in doubles without rounding that differs from CPU to CPU.
#ifndef OCTAVO_PASSES_QUANTIZE_TURN_H_
#define OCTAVO_PASSES_QUANTIZE_TURN_H_

#include <cstdint>
#include <span>

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

// Rows of [size][lanes], size a power of 2, become R' of them: each gets its sign, then the butterflies, so R' = H S / sqrt(size) and R R' = 1.
void TurnPowerOf2(double* rows, int64_t size, int64_t lanes);

// The same for any size: the first and then the last rows, as many as the largest power of 2 in it, and a reflection behind them, so that a vector of
// equal numbers stays as it is. A LayerNorm therefore sees the same mean, and turned rows come out of it turned.
void TurnStream(double* rows, int64_t size, int64_t lanes);

// R' along an axis of floats seen as [outer][size][lanes], whose elements are multiplied by those of `by` along the axis first (empty: by 1). Rounded once.
using TurnRows = void (*)(double*, int64_t, int64_t);
ir::Tensor Turned(const ir::Tensor& t, int64_t size, int64_t lanes, std::span<const float> by, TurnRows turn,
                  const ParallelFor& parallel);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_TURN_H_
