// Scratch of one call of LinearFp8: decoded rows, their sums in 64 columns, decoded weights.
#ifndef OCTAVO_KERNELS_FP8_FP8_LAYOUT_H_
#define OCTAVO_KERNELS_FP8_FP8_LAYOUT_H_

#include <algorithm>
#include <cstdint>

namespace octavo::kernels::internal {

inline constexpr int64_t kFp8SmallRows = 8;  // at most as many run by the tiles that decode in registers
inline constexpr int64_t kFp8SmallPairRows =
    4;  // the same in pairs of bf16: 16 sums, 4 vectors of weights, 7 registers for the lookup
inline constexpr int64_t kFp8MostRows = 192, kFp8MostTileRows = 256;
inline constexpr int64_t kFp8Chunk = 128;  // k that are decoded at once: 64 columns are 32 KB of floats

struct Fp8Layout {
  int64_t rows;                                  // that share decoded weights
  int64_t x_stride, acc_at, decoded_at, floats;  // in floats
};

// Rows: at most 192, which makes decoding 2 to 3 % of the work, and 512 KB, half of L2. per_word: values in 32 bits, 1 (floats) or
// 2 (pairs of bf16).
inline Fp8Layout MakeFp8Layout(int64_t k, int64_t per_word = 1) {
  Fp8Layout l{};
  // Padded by 16, since rows 4096 bytes apart would fight for the same set of L1.
  l.x_stride = ((k + per_word - 1) / per_word + 15) / 16 * 16 + 16;
  l.rows = std::clamp<int64_t>(512 * 1024 / (l.x_stride * 4) / 6 * 6, 12, kFp8MostRows);
  l.acc_at = l.rows * l.x_stride;
  l.decoded_at = l.acc_at + l.rows * 64;
  l.floats = l.decoded_at + kFp8Chunk / per_word * 64;
  return l;
}

// The same for AMX, in bytes: rows as bf16 and 64 columns of weights as bf16 pairs. k in whole tiles of 32.
struct Fp8TileLayout {
  int64_t rows, k;
  int64_t x_bytes, panel_bytes;  // of a row, and of 16 columns of weights
  int64_t weights_at, bytes;
};
inline Fp8TileLayout MakeFp8TileLayout(int64_t k) {
  Fp8TileLayout l{};
  l.k = (k + 31) / 32 * 32;
  l.x_bytes = l.k * 2 % 1024 == 0 ? l.k * 2 + 64 : l.k * 2;  // 16 rows would fall into few sets of L1
  l.rows = std::clamp<int64_t>(256 * 1024 / l.x_bytes / 32 * 32, 32, kFp8MostTileRows);
  l.panel_bytes = l.k * 32;
  l.weights_at = l.rows * l.x_bytes;
  l.bytes = l.weights_at + 4 * l.panel_bytes;
  return l;
}

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_FP8_FP8_LAYOUT_H_
