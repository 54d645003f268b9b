// The int8 product on AMX tiles: 32 rows x 32 columns at a time (2 x 2 tiles of sums: one load for each dot product),
// 16 rows x 64 columns where only 16 are left. Tiles are always whole, so that one configuration serves a call: a last
// group of fewer than 16 rows is copied to scratch, and what the missing rows give is not stored. A panel of the
// weights is a column of B tiles as it lies (16 quads x 64 bytes each). The epilogue of 32 rows x 64 columns runs
// between the products of the next ones (PendingRows). Per target: AVX-512 VNNI, for the epilogue.
#if defined(OCTAVO_KERNELS_GEMM_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_AMX_INL_H_
#undef OCTAVO_KERNELS_GEMM_AMX_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_AMX_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "octavo/kernels/gemm/block-inl.h"
#include "octavo/kernels/tile/amx.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Groups of 16 rows: the first `whole` at data, the others at rest.
struct TileRowGroups {
  const uint8_t* data;
  ptrdiff_t stride;
  int64_t whole;
  const uint8_t* rest;
  ptrdiff_t rest_stride;

  struct Group {
    const uint8_t* data;
    ptrdiff_t stride;
  };
  HWY_INLINE Group At(int64_t group) const {
    if (group < whole) return {data + group * 16 * stride, stride};
    return {rest + (group - whole) * 16 * rest_stride, rest_stride};
  }
};

// Rows are read where they lie if k is a multiple of 64 and their distance none of 4096 (16 such rows would fight for
// the 12 ways of one set of L1). Padding is not cleared: it meets zero weights, or gives rows that nobody stores.
inline TileRowGroups PrepareTileRows(const internal::SegmentArgs& args, int64_t first, int64_t rows, int64_t k) {
  const auto* x = static_cast<const uint8_t*>(args.x.data) + first * args.x.stride;
  auto* out = static_cast<uint8_t*>(args.scratch);
  const int64_t stride = internal::TileStride(k);
  const int64_t whole = k % 64 == 0 && args.x.stride % 4096 != 0 ? rows / 16 : 0;
  for (int64_t r = whole * 16; r < rows; ++r) {
    std::memcpy(out + (r - whole * 16) * stride, x + r * args.x.stride, static_cast<size_t>(k));
  }
  return {x, args.x.stride, whole, out, stride};
}

template <bool kSigned, int kC, int kA, int kB>
HWY_INLINE void TileDot() {
  if constexpr (kSigned) {
    tile::DotSS<kC, kA, kB>();
  } else {
    tile::DotUS<kC, kA, kB>();
  }
}

// Rows of sums that wait for their epilogue. It runs a few rows at a time between the products that come after them in
// the same call, whatever block or segment those belong to: the products have a unit of their own, but the 512
// micro-operations that a core looks ahead end within a few steps of k, so what shall run beside must stand between.
// Nothing here touches a tile.
class PendingRows {
 public:
  // Room for the next sums, whose products take `steps` steps of k: the rows that wait are spread over these.
  int32_t* Begin(int64_t steps) {
    every_ = steps * kSixteenths * kRowsAtOnce / std::max(tile_.rows, 1);  // 2 and more
    until_due_ = every_;
    PrefetchDue();
    odd_sums_ = !odd_sums_;
    return sums_[odd_sums_ ? 1 : 0];
  }
  // They are there: tile.rows of them, at most 32.
  void End(const EpilogueTile& tile) {
    FinishAll();
    tile_ = tile;
  }
  void FinishAll() {
    while (tile_.rows > 0) FinishFour();
  }

  // Room for a block's columns while those of the block before are still in use.
  BlockColumns* NextColumns() {
    odd_columns_ = !odd_columns_;
    return &columns_[odd_columns_ ? 1 : 0];
  }

  HWY_INLINE int64_t StepsUntilDue() const { return (until_due_ + kSixteenths - 1) / kSixteenths; }
  HWY_INLINE void Advance(int64_t steps) {
    until_due_ -= steps * kSixteenths;
    if (until_due_ <= 0) FinishDue();
  }

 private:
  static constexpr int kRowsAtOnce = 4;  // 290 instructions where the output is of bytes
  static constexpr int64_t kSixteenths = 16;

  HWY_NOINLINE void FinishDue() {
    for (; until_due_ <= 0; until_due_ += every_) {
      if (tile_.rows > 0) FinishFour();
    }
    PrefetchDue();
  }
  void FinishFour() {
    const int rows = tile_.rows;
    tile_.rows = std::min(rows, kRowsAtOnce);
    tile_.store(tile_);
    tile_.acc += tile_.rows * 64;
    tile_.row += tile_.rows;
    tile_.rows = rows - tile_.rows;
  }
  void PrefetchDue() const {
    if (tile_.rows == 0) return;
    EpilogueTile due = tile_;
    due.rows = std::min(due.rows, kRowsAtOnce);
    PrefetchOutput(due);
  }

  EpilogueTile tile_{};                               // what is left; at first nothing
  int64_t every_ = kSixteenths, until_due_ = every_;  // sixteenths of a step
  bool odd_sums_ = false, odd_columns_ = false;
  BlockColumns columns_[2];
  alignas(64) int32_t sums_[2][32 * 64];
};

// step(i) for each tile of k, and what is due between them.
template <class Step>
HWY_INLINE void ForTilesOfK(int64_t k_tiles, PendingRows& pending, Step step) {
  for (int64_t i = 0; i < k_tiles;) {
    const int64_t begin = i, end = std::min(k_tiles, begin + pending.StepsUntilDue());
    for (; i < end; ++i) step(i);
    pending.Advance(end - begin);
  }
}

// Where sums begin: row r at data + r * stride bytes. A stride of 0 gives every row the same beginning.
struct SumsBegin {
  const int32_t* data;
  ptrdiff_t stride;
};

// out[32][64], two panels of columns from `out` on.
template <bool kSigned>
HWY_NOINLINE void Tile2x2(TileRowGroups::Group a0, TileRowGroups::Group a1, int64_t k_tiles, const int8_t* b0,
                          const int8_t* b1, SumsBegin init, int32_t* out, PendingRows& pending) {
  const int32_t* init2 = init.data + init.stride * 4;  // sixteen rows on
  tile::Load<0>(init.data, init.stride);
  tile::Load<1>(init.data + 16, init.stride);
  tile::Load<2>(init2, init.stride);
  tile::Load<3>(init2 + 16, init.stride);
  ForTilesOfK(k_tiles, pending, [&](int64_t i) HWY_ATTR {
    tile::Load<4>(a0.data + i * 64, a0.stride);
    tile::Load<6>(b0 + i * 1024, 64);
    TileDot<kSigned, 0, 4, 6>();
    tile::Load<5>(a1.data + i * 64, a1.stride);
    TileDot<kSigned, 2, 5, 6>();
    tile::Load<7>(b1 + i * 1024, 64);
    TileDot<kSigned, 1, 4, 7>();
    TileDot<kSigned, 3, 5, 7>();
  });
  tile::Store<0>(out, 256);
  tile::Store<1>(out + 16, 256);
  tile::Store<2>(out + 16 * 64, 256);
  tile::Store<3>(out + 16 * 64 + 16, 256);
}

// out[16][64]. Four sums hide the latency of the dot product (52 cycles at 16 each), two would not.
template <bool kSigned>
HWY_NOINLINE void Tile1x4(TileRowGroups::Group a, int64_t k_tiles, const int8_t* const b[4], const int32_t* init,
                          int32_t* out, PendingRows& pending) {
  // Each instruction is a barrier: read through b, the four would be loaded again in every step.
  const int8_t *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
  tile::Load<0>(init, 0);
  tile::Load<1>(init + 16, 0);
  tile::Load<2>(init + 32, 0);
  tile::Load<3>(init + 48, 0);
  ForTilesOfK(k_tiles, pending, [&](int64_t i) HWY_ATTR {
    tile::Load<4>(a.data + i * 64, a.stride);
    tile::Load<6>(b0 + i * 1024, 64);
    TileDot<kSigned, 0, 4, 6>();
    tile::Load<7>(b1 + i * 1024, 64);
    TileDot<kSigned, 1, 4, 7>();
    tile::Load<6>(b2 + i * 1024, 64);
    TileDot<kSigned, 2, 4, 6>();
    tile::Load<7>(b3 + i * 1024, 64);
    TileDot<kSigned, 3, 4, 7>();
  });
  tile::Store<0>(out, 256);
  tile::Store<1>(out + 16, 256);
  tile::Store<2>(out + 32, 256);
  tile::Store<3>(out + 48, 256);
}

// A column of 2x2 tiles is 8 tiles of k or fewer at a time, so that rows (16 KB), the weights of 32 columns (16 KB) and
// what the epilogue touches stay in 48 KB of L1 until the next 32 columns want the rows. With all of k = 768 they would
// come from L2 again, which then gives 4 KB a step of 64 cycles; so it is 3 KB, of 48 B a cycle (kernels.md 9.4).
inline int64_t TilesOfKAtOnce(int64_t k_tiles) {
  const int64_t parts = (k_tiles + 7) / 8;
  return (k_tiles + parts - 1) / parts;
}

// 32 rows x 64 columns.
template <bool kSigned>
HWY_INLINE void RunTwoColumns(TileRowGroups::Group a0, TileRowGroups::Group a1, int64_t k_tiles,
                              const int8_t* const b[4], const int32_t* init, int32_t* acc, PendingRows& pending) {
  const int64_t at_once = TilesOfKAtOnce(k_tiles);
  for (int64_t i = 0; i < k_tiles; i += at_once) {
    const int64_t count = std::min(k_tiles - i, at_once);
    for (int64_t c = 0; c < 4; c += 2) {
      const SumsBegin begin = i == 0 ? SumsBegin{init + c * 16, 0} : SumsBegin{acc + c * 16, 256};
      Tile2x2<kSigned>({a0.data + i * 64, a0.stride}, {a1.data + i * 64, a1.stride}, count, b[c] + i * 1024,
                       b[c + 1] + i * 1024, begin, acc + c * 16, pending);
    }
  }
}

template <bool kSigned>
void RunTileBlock(const internal::SegmentArgs& args, const GemmOutput& y, int64_t block, const TileRowGroups& x,
                  int64_t first, int64_t rows, PendingRows& pending) {
  BlockColumns* columns = pending.NextColumns();
  const ColumnsOfBlock b = BeginProducts(args.x, Surplus::kZeroPoint, y, block, columns);
  const int64_t k_tiles = y.w->k_padded() / 64;
  EpilogueTile tile{};
  for (int64_t r = 0; r < rows; r += 32) {
    const int64_t left = std::min<int64_t>(rows - r, 32);
    const bool two = left > 16 && b.columns > 32;
    int32_t* acc = pending.Begin(two ? 2 * k_tiles : k_tiles);
    if (left <= 16) {
      Tile1x4<kSigned>(x.At(r / 16), k_tiles, b.panels, columns->init, acc, pending);
    } else {
      const auto a0 = x.At(r / 16), a1 = x.At(r / 16 + 1);
      if (two) {
        RunTwoColumns<kSigned>(a0, a1, k_tiles, b.panels, columns->init, acc, pending);
      } else {
        Tile2x2<kSigned>(a0, a1, k_tiles, b.panels[0], b.panels[1], {columns->init, 0}, acc, pending);
        for (int64_t i = 0; i < 32; ++i) std::memset(acc + i * 64 + 32, 0, 32 * sizeof(int32_t));
      }
    }
    // Not before the products: the tables of both together are more than a core looks ahead.
    if (r == 0) {
      FillEpilogue(args.x, y, rows, columns);
      tile = TileOf(args.x, y, b, columns, nullptr);
    }
    tile.acc = acc;
    tile.row = first + r;
    tile.rows = static_cast<int>(left);
    pending.End(tile);
  }
}

inline void RunTiles(const internal::SegmentArgs& args) {
  if (args.count == 0) return;
  const int64_t k = args.segments[0].y->w->k();
  const int64_t at_once = internal::ShareOfRows(args.rows.end - args.rows.begin, internal::TileRowsAtOnce(k), 32);
  const bool is_signed = args.x.dtype == quant::DType::kS8;
  PendingRows pending;
  tile::LoadConfig(tile::kWholeTiles);
  for (int64_t first = args.rows.begin; first < args.rows.end; first += at_once) {
    const int64_t rows = std::min(args.rows.end - first, at_once);
    const TileRowGroups x = PrepareTileRows(args, first, rows, k);
    for (int s = 0; s < args.count; ++s) {
      const internal::Segment& segment = args.segments[s];
      for (int64_t b = segment.blocks.begin; b < segment.blocks.end; ++b) {
        is_signed ? RunTileBlock<true>(args, *segment.y, b, x, first, rows, pending)
                  : RunTileBlock<false>(args, *segment.y, b, x, first, rows, pending);
      }
    }
  }
  tile::Release();
  pending.FinishAll();
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
