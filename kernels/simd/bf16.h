// fp8 values as bf16: every one is a normal bf16 (the least E5M2 is 2^-16) or 0, so units that take subnormal numbers for 0 lose none.
#ifndef OCTAVO_KERNELS_SIMD_BF16_H_
#define OCTAVO_KERNELS_SIMD_BF16_H_

#include <cstdint>

#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

// The bytes of the bf16 of codes 0 to 127; the sign is left to the code.
struct alignas(64) Bf16Table {
  uint8_t low[128];
  uint8_t high[128];
};

// dtype: kE4M3FN or kE5M2.
const Bf16Table& Bf16TableOf(quant::DType dtype);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_BF16_H_
