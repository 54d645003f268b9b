// Codes of 8 bits: what the fused ops take, integers or fp8, and fp8 codes as QuantizeLinear makes and DequantizeLinear
// reads them.
#ifndef OCTAVO_QUANT_NUMERIC_CODE8_H_
#define OCTAVO_QUANT_NUMERIC_CODE8_H_

#include <cmath>
#include <cstdint>

#include "octavo/quant/numeric/dtype.h"
#include "octavo/quant/numeric/fp8.h"

namespace octavo::quant {

// Integers and fp8 do not mix in one product.
constexpr bool IsCode8(DType t) { return IsInt8(t) || IsFp8(t); }

// The value of a code; `t` is kE4M3FN or kE5M2.
inline float Fp8ToF32(uint8_t b, DType t) { return t == DType::kE4M3FN ? E4M3FNToF32(b) : E5M2ToF32(b); }

// QuantizeLinear to fp8: the code of x / scale. A NaN gets the positive code, because the sign of a NaN that an FPU makes
// depends on the CPU and on the order of operands.
inline uint8_t QuantizeFp8One(float x, float scale, DType t, bool saturate = true) {
  const float q = x / scale;
  if (std::isnan(q)) return t == DType::kE4M3FN ? 0x7f : 0x7e;
  return t == DType::kE4M3FN ? F32ToE4M3FN(q, saturate) : F32ToE5M2(q, saturate);
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_CODE8_H_
