// What QuantizeLinear to fp8 needs, prepared once per tensor; the vector part is fp8-inl.h.
#ifndef OCTAVO_KERNELS_SIMD_FP8_H_
#define OCTAVO_KERNELS_SIMD_FP8_H_

#include <cstdint>

#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

struct Fp8Requant {
  float scale;
  float reciprocal;    // 1 / scale
  float limit;         // beyond it x saturates, and so it does at it
  float largest;       // value
  float least_normal;  // value
  float magic;         // its ulp is the distance of the subnormal values
  int shift;           // bits of the mantissa that a normal code lacks
  int32_t bias;        // of its exponent, above the mantissa
  int32_t nan;
  bool divide;  // the scale is too far from 1 for the reciprocal form, or not positive
};

// dtype: kE4M3FN or kE5M2.
inline Fp8Requant MakeFp8Requant(float scale, quant::DType dtype) {
  const bool e4m3 = dtype == quant::DType::kE4M3FN;
  Fp8Requant r{};
  r.scale = scale;
  // Within these limits the remainder of every quotient that does not round to 0 is exact: its lowest bit is at 2^-123 or above
  // (quotient 2^-17, the half of the least E5M2), and limit is finite.
  r.divide = !(scale >= 0x1p-60f && scale <= 0x1p60f);
  r.reciprocal = r.divide ? 0.0f : 1.0f / scale;
  r.limit = r.divide ? 0.0f : (e4m3 ? 512.0f : 65536.0f) * scale;
  r.largest = e4m3 ? 448.0f : 57344.0f;
  r.least_normal = e4m3 ? 0x1p-6f : 0x1p-14f;
  r.magic = e4m3 ? 0x1p14f : 0x1p7f;
  r.shift = e4m3 ? 20 : 21;
  r.bias = e4m3 ? 120 << 3 : 112 << 2;
  r.nan = e4m3 ? 0x7f : 0x7e;
  return r;
}

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_FP8_H_
