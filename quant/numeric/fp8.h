// fp8 E4M3FN and E5M2 as bit patterns, as ONNX defines them (onnx docs, technical/float8).
#ifndef OCTAVO_QUANT_NUMERIC_FP8_H_
#define OCTAVO_QUANT_NUMERIC_FP8_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "octavo/quant/numeric/float16.h"

namespace octavo::quant {

inline float E5M2ToF32(uint8_t b) { return F16ToF32(static_cast<uint16_t>(b << 8)); }

inline float E4M3FNToF32(uint8_t b) {
  const int exponent = (b >> 3) & 15;
  const int mantissa = b & 7;
  float magnitude;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::bit_cast<float>(0x7fc00000u);
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return (b & 0x80) != 0 ? -magnitude : magnitude;
}

namespace internal {

// Rounds |f| to nearest even on the grid of a format with `mantissa_bits` and smallest normal exponent `min_exponent`;
// the result is exact in float32. Overflow is the caller's.
inline float RoundToGrid(float magnitude, int mantissa_bits, int min_exponent) {
  if (magnitude == 0.0f) return 0.0f;
  int exponent = std::ilogb(magnitude);
  if (exponent < min_exponent) exponent = min_exponent;
  const int ulp = exponent - mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(magnitude, -ulp)), ulp);
}

}  // namespace internal

// saturate: |x| beyond 448 and infinities become +-448; otherwise NaN. NaN stays NaN, -0 stays -0.
inline uint8_t F32ToE4M3FN(float f, bool saturate = true) {
  const auto sign = static_cast<uint8_t>(std::signbit(f) ? 0x80 : 0);
  if (std::isnan(f)) return static_cast<uint8_t>(sign | 0x7f);
  float a = std::isinf(f) ? f : internal::RoundToGrid(std::fabs(f), 3, -6);
  a = std::fabs(a);
  if (a > 448.0f) return static_cast<uint8_t>(sign | (saturate ? 0x7e : 0x7f));
  if (a < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<int>(a * 512.0f));
  const int exponent = std::ilogb(a);
  const int mantissa = static_cast<int>(std::ldexp(a, 3 - exponent)) - 8;
  return static_cast<uint8_t>(sign | ((exponent + 7) << 3) | mantissa);
}

// saturate: overflow and infinities become +-57344; otherwise infinity.
inline uint8_t F32ToE5M2(float f, bool saturate = true) {
  const auto sign = static_cast<uint8_t>(std::signbit(f) ? 0x80 : 0);
  if (std::isnan(f)) return static_cast<uint8_t>(sign | 0x7e);
  float a = std::isinf(f) ? f : internal::RoundToGrid(std::fabs(f), 2, -14);
  a = std::fabs(a);
  if (a > 57344.0f) return static_cast<uint8_t>(sign | (saturate ? 0x7b : 0x7c));
  return static_cast<uint8_t>(sign | (F32ToF16(a) >> 8));
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_FP8_H_
