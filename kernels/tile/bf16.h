// Sixteen rows x up to four panels of sixteen columns in bf16 on AMX: what LinearFp8 and the fp8 attention share. Rows and panels
// hold pairs of neighbours in order of k, in whole tiles of 32.
#ifndef OCTAVO_KERNELS_TILE_BF16_H_
#define OCTAVO_KERNELS_TILE_BF16_H_

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/tile/amx.h"

namespace octavo::kernels::tile {

// out[16][16 kC] = a . b; strides in bytes, `steps` tiles along k. Four sums hide the latency of the dot product.
template <int kC>
[[gnu::noinline]] void Bf16Columns(const uint8_t* a, ptrdiff_t a_stride, int64_t steps, const uint8_t* b, int64_t panel,
                                   float* out, ptrdiff_t out_stride) {
  Zero<0>();
  if constexpr (kC > 1) Zero<1>();
  if constexpr (kC > 2) Zero<2>();
  if constexpr (kC > 3) Zero<3>();
  for (int64_t i = 0; i < steps; ++i) {
    const uint8_t* at = b + i * 1024;
    Load<4>(a + i * 64, a_stride);
    Load<6>(at, 64);
    DotBf16<0, 4, 6>();
    if constexpr (kC > 1) {
      Load<7>(at + panel, 64);
      DotBf16<1, 4, 7>();
    }
    if constexpr (kC > 2) {
      Load<6>(at + 2 * panel, 64);
      DotBf16<2, 4, 6>();
    }
    if constexpr (kC > 3) {
      Load<7>(at + 3 * panel, 64);
      DotBf16<3, 4, 7>();
    }
  }
  Store<0>(out, out_stride);
  if constexpr (kC > 1) Store<1>(out + 16, out_stride);
  if constexpr (kC > 2) Store<2>(out + 32, out_stride);
  if constexpr (kC > 3) Store<3>(out + 48, out_stride);
}

}  // namespace octavo::kernels::tile

#endif  // OCTAVO_KERNELS_TILE_BF16_H_
