#include "octavo/kernels/quantize/quantize_ref.h"

#include <cmath>
#include <limits>

#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::kernels::internal {

void QuantizeReference(const float* x, int64_t n, float scale, int32_t zero_point, quant::DType dtype, void* y) {
  if (quant::IsFp8(dtype)) {
    for (int64_t i = 0; i < n; ++i) static_cast<uint8_t*>(y)[i] = quant::QuantizeFp8One(x[i], scale, dtype);
    return;
  }
  const auto [lo, hi] = quant::RangeOf(dtype);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t q = quant::QuantizeOne(x[i], scale, zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
    static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(q);  // same byte for s8
  }
}

void DequantizeReference(const void* x, quant::DType dtype, int64_t n, float scale, int32_t zero_point, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    if (quant::IsFp8(dtype)) {
      y[i] = quant::Fp8ToF32(static_cast<const uint8_t*>(x)[i], dtype) * scale;
      continue;
    }
    const int32_t q = dtype == quant::DType::kU8 ? static_cast<const uint8_t*>(x)[i] : static_cast<const int8_t*>(x)[i];
    y[i] = quant::DequantizeOne(q, scale, zero_point);
  }
}

MinMax MinMaxReference(const float* x, int64_t n) {
  MinMax range{std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), false};
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) {
      range.has_nan = true;
      continue;
    }
    if (x[i] < range.min) range.min = x[i];
    if (x[i] > range.max) range.max = x[i];
  }
  return range;
}

}  // namespace octavo::kernels::internal
