// What QuantizeLinear to fp8 needs, prepared once per tensor; the vector part is fp8-inl.h.
#ifndef OCTAVO_KERNELS_SIMD_FP8_H_
#define OCTAVO_KERNELS_SIMD_FP8_H_

#include <cstdint>

#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

struct Fp8Requant {
  float scale;
  float reciprocal;        // 1 / scale
  float limit;             // |x| beyond it saturates, and at it |x| / scale rounds to the largest value
  float largest;           // value
  int32_t least_exponent;  // bits of the least normal value
  int32_t magic;           // fp8-inl.h
  int32_t shift;           // bits of the mantissa that a normal code lacks
  int32_t nan;
  bool divide;  // the scale is too far from 1 for the reciprocal form, or not positive
};

// dtype: kE4M3FN or kE5M2.
inline Fp8Requant MakeFp8Requant(float scale, quant::DType dtype) {
  const bool e4m3 = dtype == quant::DType::kE4M3FN;
  Fp8Requant r{};
  r.scale = scale;
  r.largest = e4m3 ? 448.0f : 57344.0f;
  // Within these limits the remainder of every quotient that does not round to 0 is exact: its lowest bit is at 2^-123 or above
  // (quotient 2^-17, the half of the least E5M2), and limit is finite.
  r.divide = !(scale >= 0x1p-60f && scale <= 0x1p60f);
  r.reciprocal = r.divide ? 0.0f : 1.0f / scale;
  r.limit = r.divide ? 0.0f : r.largest * scale;
  r.least_exponent = (e4m3 ? 127 - 6 : 127 - 14) << 23;
  r.shift = e4m3 ? 20 : 21;
  // The exponent, in steps of the code, is too large by 121 * 8 or 113 * 4; the low byte takes that off, an even number.
  r.magic = (r.shift << 23) + (e4m3 ? -(121 << 3) & 0xff : -(113 << 2) & 0xff);
  r.nan = e4m3 ? 0x7f : 0x7e;
  return r;
}

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_FP8_H_
