// Softmax over rows, bit for bit quant::SoftmaxRow on every Arch.
#ifndef OCTAVO_KERNELS_SOFTMAX_SOFTMAX_H_
#define OCTAVO_KERNELS_SOFTMAX_SOFTMAX_H_

#include <cstdint>

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels {

// y[r] = softmax(x[r]) for `rows` rows of n elements; strides in elements. y may be x (with the same stride).
void SoftmaxRows(Arch arch, const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t n);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SOFTMAX_SOFTMAX_H_
