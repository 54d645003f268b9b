// Floats that are only stored, as bit patterns that ONNX defines: fp8 without infinities and negative zero (FNUZ), the 4-bit E2M1,
// and E8M0, a power of two.
#ifndef OCTAVO_QUANT_NUMERIC_STORED_FLOAT_H_
#define OCTAVO_QUANT_NUMERIC_STORED_FLOAT_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "octavo/quant/numeric/dtype.h"
#include "octavo/quant/numeric/fp8.h"

namespace octavo::quant {

// How E8M0, which has no mantissa, takes a number between two powers of two.
enum class PowerRounding : uint8_t { kNearest, kUp, kDown };

namespace internal {

struct StoredForm {
  int mantissa_bits, bias, sign_bit;
  float largest;
  bool has_nan;  // 0x80
};
constexpr StoredForm FormOf(DType t) {
  if (t == DType::kE4M3FNUZ) return {3, 8, 0x80, 240.0f, true};
  if (t == DType::kE5M2FNUZ) return {2, 16, 0x80, 57344.0f, true};
  return {1, 1, 0x08, 6.0f, false};
}

}  // namespace internal

inline float E8M0ToF32(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
}

// NaN, infinities and numbers below zero are NaN unless `saturate` takes them to the ends of the range; ties of kNearest go up.
inline uint8_t F32ToE8M0(float f, bool saturate, PowerRounding rounding) {
  if (std::isnan(f)) return 255;
  if (f <= 0.0f) return f == 0.0f || saturate ? 0 : 255;
  if (std::isinf(f)) return saturate ? 254 : 255;
  int exponent = std::ilogb(f);
  const float rest = std::ldexp(f, -exponent);  // in [1, 2)
  if (rounding == PowerRounding::kUp ? rest > 1.0f : rounding == PowerRounding::kNearest && rest >= 1.5f) ++exponent;
  if (exponent > 127) return saturate ? 254 : 255;
  return static_cast<uint8_t>(std::max(exponent, -127) + 127);
}

inline float StoredToF32(uint8_t code, DType type) {
  if (type == DType::kE8M0) return E8M0ToF32(code);
  const internal::StoredForm form = internal::FormOf(type);
  if (form.has_nan && code == 0x80) return std::numeric_limits<float>::quiet_NaN();
  const int magnitude = code & (form.sign_bit - 1), one = 1 << form.mantissa_bits;
  const int exponent = magnitude >> form.mantissa_bits, mantissa = magnitude & (one - 1);
  const float value = exponent == 0
                          ? std::ldexp(static_cast<float>(mantissa), 1 - form.bias - form.mantissa_bits)
                          : std::ldexp(static_cast<float>(one + mantissa), exponent - form.bias - form.mantissa_bits);
  return (code & form.sign_bit) != 0 ? -value : value;
}

// Rounded to nearest even. Beyond the largest: the largest, or NaN unless `saturate`; E2M1 has no NaN, always saturates, and takes NaN as
// -0, as ml_dtypes does.
inline uint8_t F32ToStored(float f, DType type, bool saturate = true, PowerRounding rounding = PowerRounding::kUp) {
  if (type == DType::kE8M0) return F32ToE8M0(f, saturate, rounding);
  const internal::StoredForm form = internal::FormOf(type);
  if (std::isnan(f)) return form.has_nan ? 0x80 : 0x08;
  const int sign = std::signbit(f) ? form.sign_bit : 0;
  float a = std::isinf(f) ? form.largest * 2 : internal::RoundToGrid(std::fabs(f), form.mantissa_bits, 1 - form.bias);
  if (a > form.largest) {
    if (!saturate && form.has_nan) return 0x80;
    a = form.largest;
  }
  if (a == 0.0f) return static_cast<uint8_t>(form.has_nan ? 0 : sign);
  int code = 0;
  if (a < std::ldexp(1.0f, 1 - form.bias)) {
    code = static_cast<int>(std::ldexp(a, form.mantissa_bits + form.bias - 1));
  } else {
    const int exponent = std::ilogb(a);
    code = ((exponent + form.bias) << form.mantissa_bits) +
           static_cast<int>(std::ldexp(a, form.mantissa_bits - exponent)) - (1 << form.mantissa_bits);
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_STORED_FLOAT_H_
