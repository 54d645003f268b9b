#ifndef OCTAVO_KERNELS_GEMM_GEMM_REF_H_
#define OCTAVO_KERNELS_GEMM_GEMM_REF_H_

#include <cstdint>

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels::internal {

// What follows the scale of a product, int8 or fp8: bias, activation, post scale, residual; stored to y(m, n) as its dtype says.
void FinishReference(const GemmOutput& y, int64_t m, int64_t n, float value);

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_GEMM_GEMM_REF_H_
