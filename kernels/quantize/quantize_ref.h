// The truth of quantize/, which is also its scalar form.
#ifndef OCTAVO_KERNELS_QUANTIZE_QUANTIZE_REF_H_
#define OCTAVO_KERNELS_QUANTIZE_QUANTIZE_REF_H_

#include "octavo/kernels/quantize/quantize.h"

namespace octavo::kernels::internal {

using QuantizeFn = void(const float* x, int64_t n, float scale, int32_t zero_point, quant::DType dtype, void* y);
using DequantizeFn = void(const void* x, quant::DType dtype, int64_t n, float scale, int32_t zero_point, float* y);
using MinMaxFn = MinMax(const float* x, int64_t n);

QuantizeFn QuantizeReference;
DequantizeFn DequantizeReference;
MinMaxFn MinMaxReference;

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_QUANTIZE_QUANTIZE_REF_H_
