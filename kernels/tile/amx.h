// The AMX instructions by tile number. Written as assembly: no target attribute is needed, every one is a barrier for
// memory (GCC 14.2 deletes stores that only the tile load intrinsic reads), and nothing is reordered.
// Only where SupportedArchs() has Arch::kAmx.
#ifndef OCTAVO_KERNELS_TILE_AMX_H_
#define OCTAVO_KERNELS_TILE_AMX_H_

#include <cstddef>
#include <cstdint>

namespace octavo::kernels::tile {

// The operand of LDTILECFG. A tile has up to 16 rows of up to 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[8] = {};
  uint8_t reserved_row_bytes[16] = {};
  uint8_t rows[8] = {};
  uint8_t reserved_rows[8] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Eight whole tiles: 16 x 64 bytes.
inline constexpr TileConfig kWholeTiles = [] {
  TileConfig c;
  for (int i = 0; i < 8; ++i) {
    c.row_bytes[i] = 64;
    c.rows[i] = 16;
  }
  return c;
}();

// Zeroes all tiles. About 200 cycles, so once per call of a kernel, never per tile.
[[gnu::always_inline]] inline void LoadConfig(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}
[[gnu::always_inline]] inline void StoreConfig(TileConfig* config) {
  asm volatile("sttilecfg %0" : "=m"(*config) : : "memory");
}
// Back to no tiles: context switches are cheap again.
[[gnu::always_inline]] inline void Release() { asm volatile("tilerelease" : : : "memory"); }

template <int kTile>
[[gnu::always_inline]] inline void Zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile) : "memory");
}
// Row r from p + r * stride. A stride of 0 gives every row the same bytes.
template <int kTile>
[[gnu::always_inline]] inline void Load(const void* p, ptrdiff_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
// The same for what is not read again soon: L1 keeps what it has.
template <int kTile>
[[gnu::always_inline]] inline void LoadOnce(const void* p, ptrdiff_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void Store(void* p, ptrdiff_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
// C[m][n] += sum over k of A[m][k] * B[k / 4][4 n + k % 4], wrapping. Names: sign of A, then of B.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void DotUS() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
}
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void DotSS() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
}
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void DotSU() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
}
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void DotUU() {
  asm volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
}

// C[m][n] += sum over pairs k of A[m][2k] * B[k][2n] + the same of the odd ones, bf16 to f32: two chains from 0, added, then
// added to C; rounded at every step, subnormal numbers are 0.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void DotBf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
}

}  // namespace octavo::kernels::tile

#endif  // OCTAVO_KERNELS_TILE_AMX_H_
