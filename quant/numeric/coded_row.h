// Rows of floats as codes of 8 bits with a scale for each block of 32 columns: 1.1 bytes a value. For caches (runtime/room.h), which
// are written once and read for each token.
//
// A row of n columns: ceil(n / 32) scales (f32), then n codes (s8) and zeros up to a multiple of 16.
//   scale = max |x| / 127;  code = the integer nearest to x / scale (half to even), 0 where scale is 0;  value = float(code) * scale
// A block with a NaN or an infinity becomes NaN.
#ifndef OCTAVO_QUANT_NUMERIC_CODED_ROW_H_
#define OCTAVO_QUANT_NUMERIC_CODED_ROW_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace octavo::quant {

inline constexpr int64_t kCodedBlock = 32;

constexpr int64_t CodedBlocks(int64_t columns) { return (columns + kCodedBlock - 1) / kCodedBlock; }
constexpr size_t CodedCodesAt(int64_t columns) { return static_cast<size_t>(CodedBlocks(columns)) * sizeof(float); }
constexpr size_t CodedRowBytes(int64_t columns) {
  return CodedCodesAt(columns) + static_cast<size_t>((columns + 15) / 16 * 16);
}

inline void EncodeRow(const float* x, int64_t columns, std::byte* y) {
  auto* codes = reinterpret_cast<int8_t*>(y + CodedCodesAt(columns));
  std::memset(codes, 0, CodedRowBytes(columns) - CodedCodesAt(columns));
  for (int64_t b = 0; b < CodedBlocks(columns); ++b) {
    const int64_t begin = b * kCodedBlock, end = std::min(columns, begin + kCodedBlock);
    float most = 0.0f, nothing = 0.0f;  // the second is NaN where a value is no number
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i])), nothing += x[i] * 0.0f;
    constexpr float kMost = 0x1.020406p+121f;  // 127 times the next float is infinite
    const float scale = std::min(most / 127.0f, kMost) + nothing;
    std::memcpy(y + static_cast<size_t>(b) * sizeof(float), &scale, sizeof(float));
    if (!(scale > 0.0f)) continue;
    constexpr float kWhole = 1.5f * (1 << 23);  // its last bit is 1, so a sum with it is rounded to a whole number
    for (int64_t i = begin; i < end; ++i) {
      const float q = std::clamp(x[i] / scale, -127.0f, 127.0f);  // beyond where scale is subnormal
      codes[i] = static_cast<int8_t>(std::bit_cast<int32_t>(q + kWhole) - std::bit_cast<int32_t>(kWhole));
    }
  }
}

inline void DecodeRow(const std::byte* y, int64_t columns, float* x) {
  const auto* codes = reinterpret_cast<const int8_t*>(y + CodedCodesAt(columns));
  for (int64_t b = 0; b < CodedBlocks(columns); ++b) {
    float scale;
    std::memcpy(&scale, y + static_cast<size_t>(b) * sizeof(float), sizeof(float));
    for (int64_t i = b * kCodedBlock; i < std::min(columns, (b + 1) * kCodedBlock); ++i)
      x[i] = static_cast<float>(codes[i]) * scale;
  }
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_CODED_ROW_H_
