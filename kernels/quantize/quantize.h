// QuantizeLinear and DequantizeLinear per tensor, and the range of a tensor for dynamic quantization. Truth:
// quant/numeric/rounding.h. Contiguous; callers split [0, n) as they like. Bits are equal for every Arch.
#ifndef OCTAVO_KERNELS_QUANTIZE_QUANTIZE_H_
#define OCTAVO_KERNELS_QUANTIZE_QUANTIZE_H_

#include <cstdint>

#include "octavo/kernels/arch/arch.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

// y[i] = clamp(rne(x[i] / scale) + zero_point) to the range of `dtype`, kU8 or kS8; NaN gives the lower end.
// kE4M3FN, kE5M2: the code of x[i] / scale, saturating (quant/numeric/code8.h); the zero point is not looked at.
void QuantizeLinear(Arch arch, const float* x, int64_t n, float scale, int32_t zero_point, quant::DType dtype, void* y);

// y[i] = float(x[i] - zero_point) * scale. `dtype` is that of x: kU8, kS8; fp8: its value * scale.
void DequantizeLinear(Arch arch, const void* x, quant::DType dtype, int64_t n, float scale, int32_t zero_point,
                      float* y);

struct MinMax {
  float min;
  float max;
  bool has_nan;  // min and max are then those of the other elements
};
// {+inf, -inf, false} for n = 0. -0 and +0 count as equal; which of them is returned is not specified.
MinMax FindMinMax(Arch arch, const float* x, int64_t n);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_QUANTIZE_QUANTIZE_H_
