// Scale and zero point of one tensor, and how they follow from a range. All arithmetic is float32, in the order written
// here, one rounding per operation (no FMA): the same range gives the same bits on every machine.
#ifndef OCTAVO_QUANT_NUMERIC_QPARAMS_H_
#define OCTAVO_QUANT_NUMERIC_QPARAMS_H_

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <span>

#include "octavo/quant/numeric/dtype.h"
#include "octavo/quant/numeric/fp8.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::quant {

// x is represented by clamp(rne(x / scale) + zero_point); fp8: by the nearest code of x / scale, zero_point 0.
struct QParams {
  DType dtype = DType::kU8;
  float scale = 1.0f;
  int32_t zero_point = 0;
  bool operator==(const QParams&) const = default;
};

// Largest finite value of an fp8 type.
constexpr float MaxOfFp8(DType t) { return t == DType::kE4M3FN ? 448.0f : 57344.0f; }

struct ParamOptions {
  // The scale becomes the next power of two that does not clip more: dividing by it is exact.
  bool power_of_two = false;
};

// A scale is a normal float: no division by 0, no slow and inexact denormal, no infinity.
inline float UsableScale(float scale, const ParamOptions& options = {}) {
  if (!(scale >= FLT_MIN)) return FLT_MIN;
  if (scale > FLT_MAX) scale = FLT_MAX;
  if (!options.power_of_two) return scale;
  int exponent;
  const float mantissa = std::frexp(scale, &exponent);  // in [0.5, 1)
  if (mantissa == 0.5f) return scale;
  return exponent > 127 ? 0x1p127f : std::ldexp(1.0f, exponent);
}

// [lo, hi] symmetric about 0: scale = max(|lo|, |hi|) / m, with m = 127 for s8 and u8 (zero point 0 and 128), so that a
// value and its negative get opposite codes; for fp8 m is the largest finite value. An empty range gives scale 1.
inline QParams SymmetricParams(float lo, float hi, DType dtype, const ParamOptions& options = {}) {
  const float absmax = std::max(std::fabs(lo), std::fabs(hi));
  if (IsFp8(dtype)) return {dtype, absmax > 0.0f ? UsableScale(absmax / MaxOfFp8(dtype), options) : 1.0f, 0};
  const auto [qlo, qhi] = RangeOf(dtype);
  const auto zero = static_cast<int32_t>(qlo < 0 ? 0 : (qhi + 1) / 2);
  if (!(absmax > 0.0f)) return {dtype, 1.0f, zero};
  return {dtype, UsableScale(absmax / static_cast<float>(qhi - zero), options), zero};
}

// Affine: [min(lo, 0), max(hi, 0)] on all codes of an integer type, so that 0 is a code (padding, ReLU).
//   scale = (hi - lo) / (qhi - qlo), or hi / n - lo / n where hi - lo overflows
//   zero point = clamp(rne(qlo - lo / scale))
// An empty range gives scale 1, zero point 0. fp8 has no zero point: symmetric.
inline QParams AffineParams(float lo, float hi, DType dtype, const ParamOptions& options = {}) {
  if (IsFp8(dtype)) return SymmetricParams(lo, hi, dtype, options);
  lo = std::min(lo, 0.0f);
  hi = std::max(hi, 0.0f);
  if (lo == hi) return {dtype, 1.0f, 0};
  const auto [qlo, qhi] = RangeOf(dtype);
  const auto steps = static_cast<float>(qhi - qlo);
  float scale = (hi - lo) / steps;
  if (std::isinf(scale)) scale = hi / steps - lo / steps;
  scale = UsableScale(scale, options);
  const float zero = RoundHalfEven(static_cast<float>(qlo) - lo / scale);
  const float clamped = std::clamp(zero, static_cast<float>(qlo), static_cast<float>(qhi));
  return {dtype, scale, static_cast<int32_t>(clamped)};
}

// The code of one value; only integer types.
inline int32_t QuantizeTo(float x, const QParams& p) {
  const auto [lo, hi] = RangeOf(p.dtype);
  return QuantizeOne(x, p.scale, p.zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
}

// What is left of x after quantizing and dequantizing.
inline float FakeQuant(float x, const QParams& p) {
  if (p.dtype == DType::kE4M3FN) return E4M3FNToF32(F32ToE4M3FN(x / p.scale)) * p.scale;
  if (p.dtype == DType::kE5M2) return E5M2ToF32(F32ToE5M2(x / p.scale)) * p.scale;
  return DequantizeOne(QuantizeTo(x, p), p.scale, p.zero_point);
}

// Symmetric scales of a weight, one per channel: channel c is every w[(o * channels + c) * inner + i]. A [K, N] matrix
// with one scale per output column is (outer K, channels N, inner 1); the same stored as [N, K] is (1, N, K).
// scale = absmax / 127 for s8 (MaxOfFp8 for fp8); a channel of zeros gets 1. Returns the first channel with a NaN or an
// infinity, -1 if there is none; `scales` is then complete.
inline int64_t ChannelScales(std::span<const float> w, int64_t outer, int64_t channels, int64_t inner, DType dtype,
                             std::span<float> scales, const ParamOptions& options = {}) {
  std::fill(scales.begin(), scales.end(), 0.0f);
  const float* x = w.data();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      float absmax = scales[static_cast<size_t>(c)];
      for (int64_t i = 0; i < inner; ++i, ++x) {
        const float magnitude = std::fabs(*x);
        if (!(magnitude <= FLT_MAX)) return c;
        absmax = std::max(absmax, magnitude);
      }
      scales[static_cast<size_t>(c)] = absmax;
    }
  }
  for (float& s : scales) s = SymmetricParams(-s, s, dtype, options).scale;
  return -1;
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_QPARAMS_H_
