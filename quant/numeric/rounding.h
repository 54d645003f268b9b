// How a float becomes an 8-bit integer: ONNX QuantizeLinear's order, one contract for all.
#ifndef OCTAVO_QUANT_NUMERIC_ROUNDING_H_
#define OCTAVO_QUANT_NUMERIC_ROUNDING_H_

#include <cmath>
#include <cstdint>

namespace octavo::quant {

// Round half to even, whatever the process' rounding mode is left at its default.
inline float RoundHalfEven(float x) { return std::nearbyint(x); }

// clamp(rne(x / scale) + zero_point, lo, hi): true division, zero point after rounding, then saturation.
// NaN becomes lo (what cvtps followed by an integer clamp gives on every ISA; ONNX leaves it open).
// The clamp is done in float before the conversion: |lo|, |hi|, |zero_point| < 2^24, so every step is exact.
inline int32_t QuantizeOne(float x, float scale, int32_t zero_point, int32_t lo, int32_t hi) {
  const float q = RoundHalfEven(x / scale);
  const auto low = static_cast<float>(lo - zero_point);
  const auto high = static_cast<float>(hi - zero_point);
  if (!(q > low)) return lo;  // also NaN
  if (q >= high) return hi;
  return static_cast<int32_t>(q) + zero_point;
}

// (q - zero_point) * scale, in float32.
inline float DequantizeOne(int32_t q, float scale, int32_t zero_point) {
  return static_cast<float>(q - zero_point) * scale;
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_ROUNDING_H_
