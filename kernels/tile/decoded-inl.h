// Rows of floats by weights that were decoded to floats before, [steps][64]: the tile of fp8 and of blocked weights with many rows. Per
// target.
#if defined(OCTAVO_KERNELS_TILE_DECODED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_TILE_DECODED_INL_H_
#undef OCTAVO_KERNELS_TILE_DECODED_INL_H_
#else
#define OCTAVO_KERNELS_TILE_DECODED_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using DecodedD = hwy::HWY_NAMESPACE::ScalableTag<float>;
using DecodedV = hwy::HWY_NAMESPACE::Vec<DecodedD>;
// Rows and vectors of columns, so that sums, weights and one value of a row fit into 16 ymm or 32 zmm.
inline constexpr int kDecodedRows = 6, kDecodedVectors = HWY_TARGET == HWY_AVX2 ? 2 : 4;
inline constexpr int kDecodedColumns = kDecodedVectors * static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(DecodedD()));

// kRows x kDecodedVectors vectors of columns. `sums` says with what those of a row and vector begin, First(r, v), and where they go,
// Last(r, v, sum). A word of a row meets one of each column: a float, or a pair of bf16.
template <class Engine, int kRows, class Sums>
HWY_NOINLINE void DecodedTile(const float* HWY_RESTRICT x, int64_t stride, const float* HWY_RESTRICT w, int64_t steps,
                              Sums sums) {
  namespace hn = hwy::HWY_NAMESPACE;
  const DecodedD d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DecodedD()));
  DecodedV sum[kRows][kDecodedVectors];
  // Unrolled, all of them: one index that is no constant, and GCC keeps all sums in memory.
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kDecodedVectors; ++v) sum[r][v] = sums.First(r, v);
  }
  for (int64_t i = 0; i < steps; ++i) {
    DecodedV b[kDecodedVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kDecodedVectors; ++v) b[v] = hn::Load(d, w + i * 64 + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const DecodedV a = hn::Set(d, x[r * stride + i]);
      HWY_UNROLL(8)
      for (int v = 0; v < kDecodedVectors; ++v) Engine::Dot(sum[r][v], a, b[v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kDecodedVectors; ++v) sums.Last(r, v, sum[r][v]);
  }
}

// 1 to kDecodedRows rows x 64 columns; sums.From(c) are those of the columns from c on.
template <class Engine, class Sums>
void DecodedRows(const float* x, int64_t stride, int64_t rows, const float* w, int64_t steps, const Sums& sums) {
  WithRows<kDecodedRows>(rows, [&]<int kRows>() HWY_ATTR {
    for (int c = 0; c < 64; c += kDecodedColumns) DecodedTile<Engine, kRows>(x, stride, w + c, steps, sums.From(c));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // OCTAVO_KERNELS_TILE_DECODED_INL_H_
