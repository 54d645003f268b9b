// fp8 products on AMX bf16 tiles: 32 rows x 32 columns at a time, 16 x 64 for a last group. A
// tile product adds two chains of sixteen pairs (TDPBF16PS in the manual), so sums differ from fp8.h by rounding; they do not
// depend on how rows and blocks are split. Per target: AVX-512 VNNI, for decoding and the epilogue.
#if defined(OCTAVO_KERNELS_FP8_FP8_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_FP8_FP8_AMX_INL_H_
#undef OCTAVO_KERNELS_FP8_FP8_AMX_INL_H_
#else
#define OCTAVO_KERNELS_FP8_FP8_AMX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/fp8/fp8_epilogue-inl.h"
#include "octavo/kernels/fp8/fp8_layout.h"
#include "octavo/kernels/fp8/fp8_pairs-inl.h"
#include "octavo/kernels/tile/bf16.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// out[32][64], two panels of columns from `out` on.
HWY_NOINLINE inline void Bf16Tile2x2(const uint8_t* a, int64_t stride, int64_t steps, const uint8_t* b0,
                                     const uint8_t* b1, float* out) {
  const uint8_t* a1 = a + 16 * stride;
  tile::Zero<0>(), tile::Zero<1>(), tile::Zero<2>(), tile::Zero<3>();
  for (int64_t i = 0; i < steps; ++i) {
    tile::Load<4>(a + i * 64, stride);
    tile::Load<6>(b0 + i * 1024, 64);
    tile::DotBf16<0, 4, 6>();
    tile::Load<5>(a1 + i * 64, stride);
    tile::DotBf16<2, 5, 6>();
    tile::Load<7>(b1 + i * 1024, 64);
    tile::DotBf16<1, 4, 7>();
    tile::DotBf16<3, 5, 7>();
  }
  tile::Store<0>(out, 256);
  tile::Store<1>(out + 16, 256);
  tile::Store<2>(out + 16 * 64, 256);
  tile::Store<3>(out + 16 * 64 + 16, 256);
}

inline void RunTileBlock(const Fp8Args& args, const Fp8Output& out, int64_t block, int64_t first, int64_t rows,
                         const internal::Fp8TileLayout& l, uint8_t* scratch) {
  uint8_t* b = scratch + l.weights_at;
  DecodePairs(out.w->dtype(), out.w->Block(block), out.w->k(), l.k / 2, 64, l.panel_bytes, b);
  const Fp8Epilogue epilogue(args.x.scale, out, block, {first, first + rows});
  alignas(64) float acc[32 * 64];
  for (int64_t r = 0; r < rows; r += 32) {
    const int64_t left = std::min<int64_t>(rows - r, 32);
    const uint8_t* a = scratch + r * l.x_bytes;
    if (left <= 16) {
      tile::Bf16Columns<4>(a, l.x_bytes, l.k / 32, b, l.panel_bytes, acc, 256);
    } else {
      Bf16Tile2x2(a, l.x_bytes, l.k / 32, b, b + l.panel_bytes, acc);
      Bf16Tile2x2(a, l.x_bytes, l.k / 32, b + 2 * l.panel_bytes, b + 3 * l.panel_bytes, acc + 32);
    }
    epilogue.Run(acc, first + r, left);
  }
}

inline void RunFp8Tiles(const Fp8Args& args, Range rows, Range blocks, void* memory) {
  if (args.count == 0) return;
  const int64_t k = args.out[0].w->k();
  const internal::Fp8TileLayout l = internal::MakeFp8TileLayout(k);
  auto* scratch = static_cast<uint8_t*>(memory);
  tile::LoadConfig(tile::kWholeTiles);
  for (int64_t first = rows.begin; first < rows.end; first += l.rows) {
    const int64_t count = std::min(rows.end - first, l.rows);
    const auto* codes = static_cast<const uint8_t*>(args.x.data) + first * args.x.stride;
    for (int64_t r = 0; r < count; ++r) {
      PairsOfRow(args.x.dtype, codes + r * args.x.stride, static_cast<size_t>(k), static_cast<size_t>(l.k / 2),
                 reinterpret_cast<uint32_t*>(scratch + r * l.x_bytes));
    }
    int64_t begin = 0;  // block at which output i begins
    for (int i = 0; i < args.count; ++i) {
      const Fp8Output& out = args.out[i];
      const int64_t own = ColumnBlocks(out.w->n());
      const Range part{std::max<int64_t>(blocks.begin - begin, 0), std::min(blocks.end - begin, own)};
      begin += own;
      if (part.begin >= part.end) continue;
      for (int64_t b = part.begin; b < part.end; ++b) RunTileBlock(args, out, b, first, count, l, scratch);
    }
  }
  tile::Release();
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
