// Rows of floats as codes of 8 or 4 bits with a scale for each block of 32 columns: 1.1 or 0.6 bytes a value. For caches (runtime/room.h),
// which are written once and read for each token.
//
// A row of n columns: ceil(n / 32) scales (f32), then n codes and zeros up to a multiple of 16.
//   8 bits: s8, scale = max |x| / 127
//   4 bits: code + 8, of 16 columns the first 8 in the low halves of 8 bytes and the others in the high ones; scale = x / -8 of the x with
//           the largest |x|, so that all 16 codes are used (as llama.cpp's Q4_0 does)
//   code = the integer nearest to x / scale (half to even), 0 where scale is 0;  value = float(code) * scale
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
constexpr size_t CodedRowBytes(int64_t columns, int bits) {
  return CodedCodesAt(columns) + static_cast<size_t>((columns + 15) / 16 * 16 * bits / 8);
}

// The byte of a code of 4 bits and how far it is shifted there.
struct HalfByte {
  size_t byte;
  int shift;
};
constexpr HalfByte HalfByteOf(int64_t column) {
  return {static_cast<size_t>(column / 16 * 8 + column % 8), column % 16 < 8 ? 0 : 4};
}

inline void EncodeRow(const float* x, int64_t columns, int bits, std::byte* y) {
  auto* codes = reinterpret_cast<uint8_t*>(y + CodedCodesAt(columns));
  std::memset(codes, bits == 4 ? 0x88 : 0, CodedRowBytes(columns, bits) - CodedCodesAt(columns));
  for (int64_t b = 0; b < CodedBlocks(columns); ++b) {
    const int64_t begin = b * kCodedBlock, end = std::min(columns, begin + kCodedBlock);
    float most = 0.0f, farthest = 0.0f, nothing = 0.0f;  // the last is NaN where a value is no number
    for (int64_t i = begin; i < end; ++i) {
      if (std::abs(x[i]) > most) most = std::abs(x[i]), farthest = x[i];
      nothing += x[i] * 0.0f;
    }
    constexpr float kMost = 0x1.020406p+121f;  // 127 times the next float is infinite
    const float scale = (bits == 4 ? farthest / -8.0f : std::min(most / 127.0f, kMost)) + nothing;
    std::memcpy(y + static_cast<size_t>(b) * sizeof(float), &scale, sizeof(float));
    if (!(scale != 0.0f) || std::isnan(scale)) continue;
    constexpr float kWhole = 1.5f * (1 << 23);  // its last bit is 1, so a sum with it is rounded to a whole number
    const float low = bits == 4 ? -8.0f : -127.0f, high = bits == 4 ? 7.0f : 127.0f;
    for (int64_t i = begin; i < end; ++i) {
      const float q = std::clamp(x[i] / scale, low, high);  // beyond where scale is subnormal
      const int32_t code = std::bit_cast<int32_t>(q + kWhole) - std::bit_cast<int32_t>(kWhole);
      if (bits == 8) {
        codes[i] = static_cast<uint8_t>(code);
      } else {
        const HalfByte at = HalfByteOf(i);
        codes[at.byte] ^= static_cast<uint8_t>(((code + 8) ^ 8) << at.shift);
      }
    }
  }
}

inline int CodeOf(const std::byte* codes, int64_t column, int bits) {
  if (bits == 8) return static_cast<int8_t>(codes[column]);
  const HalfByte at = HalfByteOf(column);
  return (static_cast<int>(codes[at.byte]) >> at.shift & 15) - 8;
}

inline void DecodeRow(const std::byte* y, int64_t columns, int bits, float* x) {
  const std::byte* codes = y + CodedCodesAt(columns);
  for (int64_t b = 0; b < CodedBlocks(columns); ++b) {
    float scale;
    std::memcpy(&scale, y + static_cast<size_t>(b) * sizeof(float), sizeof(float));
    for (int64_t i = b * kCodedBlock; i < std::min(columns, (b + 1) * kCodedBlock); ++i)
      x[i] = static_cast<float>(CodeOf(codes, i, bits)) * scale;
  }
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_CODED_ROW_H_
