// What QuantizeLinear needs, prepared once per tensor; the vector part is requant-inl.h.
#ifndef OCTAVO_KERNELS_SIMD_REQUANT_H_
#define OCTAVO_KERNELS_SIMD_REQUANT_H_

#include <cstdint>

#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

struct Requant {
  float scale;
  float reciprocal;  // 1 / scale
  // Results beyond these saturate: one step outside of the range, as values of x (`divide`: of x / scale).
  float low;
  float high;
  int32_t offset;  // turns the bits of (x / scale + kRoundMagic) into the s8 result; u8 results are shifted by 128
  uint8_t flip;    // then flips the top bit of u8 results: 0x80, or 0 for s8
  bool divide;     // the scale is too far from 1 for the reciprocal form
};

// Added to |q| < 2^22, it leaves q, rounded half to even, in the low bits of the sum.
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23
inline constexpr int32_t kRoundMagicBits = 0x4B400000;

// dtype: kU8 or kS8, zero_point in its range.
inline Requant MakeRequant(float scale, int32_t zero_point, quant::DType dtype) {
  const bool is_unsigned = dtype == quant::DType::kU8;
  const int32_t lo = is_unsigned ? 0 : -128;
  const auto low = static_cast<float>(lo - zero_point - 1);
  const auto high = static_cast<float>(lo + 255 - zero_point + 1);
  Requant r{};
  r.scale = scale;
  // Negative, zero, NaN or extreme scales: plain division. Within these limits no step of the reciprocal form
  // overflows, and none underflows for a quotient that does not round to 0.
  r.divide = !(scale >= 0x1p-100f && scale <= 0x1p100f);
  r.reciprocal = r.divide ? 0.0f : 1.0f / scale;
  r.low = r.divide ? low : low * scale;
  r.high = r.divide ? high : high * scale;
  r.flip = is_unsigned ? 0x80 : 0;
  r.offset = zero_point - (is_unsigned ? 128 : 0) - kRoundMagicBits;
  return r;
}

// DequantizeLinear(QuantizeLinear(x)).
struct RoundTrip {
  Requant to;
  float lowest, highest;  // codes less the zero point
  float back;             // what one of them stands for
};
inline RoundTrip MakeRoundTrip(float scale, int32_t zero_point, quant::DType dtype, float back) {
  const auto [lo, hi] = quant::RangeOf(dtype);
  return {MakeRequant(scale, zero_point, dtype), static_cast<float>(lo - zero_point),
          static_cast<float>(hi - zero_point), back};
}

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_REQUANT_H_
