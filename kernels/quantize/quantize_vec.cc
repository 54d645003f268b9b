#include "octavo/kernels/quantize/quantize_ref.h"

namespace octavo::kernels {

void QuantizeLinear(Arch, const float* x, int64_t n, float scale, int32_t zero_point, quant::DType dtype, void* y) {
  internal::QuantizeReference(x, n, scale, zero_point, dtype, y);
}
void DequantizeLinear(Arch, const void* x, quant::DType dtype, int64_t n, float scale, int32_t zero_point, float* y) {
  internal::DequantizeReference(x, dtype, n, scale, zero_point, y);
}
MinMax FindMinMax(Arch, const float* x, int64_t n) { return internal::MinMaxReference(x, n); }

}  // namespace octavo::kernels
