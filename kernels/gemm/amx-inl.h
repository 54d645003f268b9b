// The int8 product on AMX tiles: 32 rows x 32 columns at a time (2 x 2 tiles of sums: one load for each dot product),
// 16 rows x 64 columns where only 16 are left. Tiles are always whole, so that one configuration serves a call: a last
// group of fewer than 16 rows is copied to scratch, and what the missing rows give is not stored. A panel of the
// weights is a column of B tiles as it lies (16 quads x 64 bytes each). 32 rows stay in L1 while some blocks of weights
// pass them from L2; the epilogue of 32 rows x 64 columns runs between the products of the next ones (PendingRows).
// Per target: AVX-512 VNNI, for the epilogue.
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
#include "octavo/kernels/gemm/stepped-inl.h"
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

// Rows are read where they lie if they begin with lines (else each is two lines: 47 cycles a product instead of 35 on Granite
// Rapids, kernels/DESIGN.md), k is a multiple of 64, and their distance is none of 4096 (16 such rows would fight for the 12 ways of one set
// of L1). Padding is not cleared: it meets zero weights, or gives rows that nobody stores.
inline bool AreWholeLines(const GemmInput& x, int64_t k) {
  return k % 64 == 0 && x.stride % 64 == 0 && x.stride % 4096 != 0 && reinterpret_cast<uintptr_t>(x.data) % 64 == 0;
}
inline TileRowGroups PrepareTileRows(const internal::SegmentArgs& args, int64_t first, int64_t rows, int64_t k) {
  const auto* x = static_cast<const uint8_t*>(args.x.data) + first * args.x.stride;
  auto* out = static_cast<uint8_t*>(args.scratch);
  const int64_t stride = internal::TileStride(k);
  const int64_t whole = AreWholeLines(args.x, k) ? rows / 16 : 0;
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

// A block of 64 columns of y, what its epilogue needs, and the epilogue of a tile of it without sums and rows.
struct TileBlock {
  ColumnsOfBlock place;
  BlockColumns columns;
  EpilogueTile tile;
};

// The weights of the next blocks, which come to L2 while these are multiplied: so many lines a step of k. From an L3 that gives
// 7 B a cycle, 128 rows at k = 3072 take 30 cycles a product instead of 34.
class WeightsAhead {
 public:
  WeightsAhead() = default;
  // Blocks [begin, end) of w, in `steps` steps.
  WeightsAhead(const PackedWeights& w, int64_t begin, int64_t end, int64_t steps)
      : next_(w.Panel(begin * 4)),
        lines_((std::min(end * 4, w.n_padded() / 16) - begin * 4) * w.panel_bytes() / 64),
        at_once_((lines_ + steps - 1) / steps) {}

  HWY_INLINE void Run(int64_t steps) {
    const int64_t count = std::min(steps * at_once_, lines_);
    for (int64_t i = 0; i < count; ++i) asm volatile("prefetcht2 (%0)" ::"r"(next_ + i * 64));
    next_ += count * 64, lines_ -= count;
  }

 private:
  const int8_t* next_ = nullptr;
  int64_t lines_ = 0, at_once_ = 0;
};

// Rows of sums that wait for their epilogue. It runs a few rows at a time between the products that come after them in
// the same call, whatever block or segment those belong to: the products have a unit of their own, but the 512
// micro-operations that a core looks ahead end within a few steps of k, so what shall run beside must stand between.
// Nothing here touches a tile.
class PendingRows {
 public:
  // Room for the next sums, of which the first are stored after `steps` steps of k: the rows that wait are spread over these.
  int32_t* Begin(int64_t steps) {
    every_ = steps * kSixteenths * kRowsAtOnce / std::max(rows_left_, 1);  // 2 and more
    until_due_ = every_;
    return sums_;
  }
  // Before those are stored.
  void FinishAll() {
    while (rows_left_ > 0) FinishFour();
  }
  // All of them are there: `rows`, at most 32, which are rows from `row` on of y. The tile stays where it is: a copy would wait for the
  // stores that made it, and those for the sums (kernels/DESIGN.md).
  void End(EpilogueTile* tile, int64_t row, int rows) {
    tile_ = tile, next_ = sums_, rows_left_ = rows;
    tile_->row = row;
  }

  // Room for some blocks while those before are still in use.
  TileBlock* NextBlocks() {
    odd_blocks_ = !odd_blocks_;
    return blocks_[odd_blocks_ ? 1 : 0];
  }
  static constexpr int64_t kMostBlocks = internal::kMostTileBlocks;

  WeightsAhead ahead;

  HWY_INLINE int64_t StepsUntilDue() const { return (until_due_ + kSixteenths - 1) / kSixteenths; }
  HWY_INLINE void Advance(int64_t steps) {
    until_due_ -= steps * kSixteenths;
    if (until_due_ <= 0) FinishDue();
  }

 private:
  static constexpr int kRowsAtOnce = 4;  // 300 instructions where the output is of bytes
  static constexpr int64_t kSixteenths = 16;

  HWY_NOINLINE void FinishDue() {
    for (; until_due_ <= 0; until_due_ += every_) {
      if (rows_left_ > 0) FinishFour();
    }
  }
  void FinishFour() {
    tile_->rows = std::min(rows_left_, kRowsAtOnce);
    if (tile_->columns_of->fixed.digits == 0) {  // not StoreFixed
      for (int r = 0; r < tile_->rows; ++r) AddRow(next_ + r * 64, tile_->begin, four_ + r * 64);
      tile_->acc = four_;
    } else {
      tile_->acc = next_;
    }
    tile_->store(*tile_);
    next_ += tile_->rows * 64;
    rows_left_ -= tile_->rows;
    tile_->row += tile_->rows;
  }

  EpilogueTile* tile_ = nullptr;  // of the rows that are left
  int rows_left_ = 0;
  int32_t* next_ = nullptr;                           // their sums
  int64_t every_ = kSixteenths, until_due_ = every_;  // sixteenths of a step
  bool odd_blocks_ = false;
  TileBlock blocks_[2][kMostBlocks];
  alignas(64) int32_t sums_[32 * 64];  // one: a second took the rows' place in L1
  alignas(64) int32_t four_[kRowsAtOnce * 64];
};

// step(i) for each tile of k, and what is due between some of them.
template <class Step>
HWY_INLINE void ForTilesOfK(int64_t k_tiles, PendingRows& pending, Step step) {
  constexpr int64_t kMostSteps = 4;
  for (int64_t i = 0; i < k_tiles;) {
    const int64_t begin = i, end = std::min(k_tiles, begin + std::min(pending.StepsUntilDue(), kMostSteps));
    for (; i < end; ++i) step(i);
    pending.ahead.Run(end - begin);
    pending.Advance(end - begin);
  }
}

// Sums of 0. Loading what zero points contribute costs 2 cycles a product here, and nothing in the epilogue.
HWY_INLINE void BeginSums() { tile::Zero<0>(), tile::Zero<1>(), tile::Zero<2>(), tile::Zero<3>(); }

// out[32][64], two panels of columns from `out` on. goes_on: from what stands there.
template <bool kSigned>
HWY_NOINLINE void Tile2x2(TileRowGroups::Group a0, TileRowGroups::Group a1, int64_t k_tiles, const int8_t* b0,
                          const int8_t* b1, bool goes_on, int32_t* out, PendingRows& pending) {
  int32_t* out2 = out + 16 * 64;
  if (goes_on) {
    tile::Load<0>(out, 256), tile::Load<1>(out + 16, 256), tile::Load<2>(out2, 256), tile::Load<3>(out2 + 16, 256);
  } else {
    BeginSums();
  }
  ForTilesOfK(k_tiles, pending, [&](int64_t i) HWY_ATTR {
    tile::Load<4>(a0.data + i * 64, a0.stride);
    tile::LoadOnce<6>(b0 + i * 1024, 64);
    TileDot<kSigned, 0, 4, 6>();
    tile::Load<5>(a1.data + i * 64, a1.stride);
    TileDot<kSigned, 2, 5, 6>();
    tile::LoadOnce<7>(b1 + i * 1024, 64);
    TileDot<kSigned, 1, 4, 7>();
    TileDot<kSigned, 3, 5, 7>();
  });
  pending.FinishAll();
  tile::Store<0>(out, 256), tile::Store<1>(out + 16, 256), tile::Store<2>(out2, 256), tile::Store<3>(out2 + 16, 256);
}

// out[16][64]. Four sums hide the latency of the dot product (52 cycles at 16 each), two would not.
template <bool kSigned>
HWY_NOINLINE void Tile1x4(TileRowGroups::Group a, int64_t k_tiles, const int8_t* const b[4], int32_t* out,
                          PendingRows& pending) {
  // Each instruction is a barrier: read through b, the four would be loaded again in every step.
  const int8_t *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
  BeginSums();
  ForTilesOfK(k_tiles, pending, [&](int64_t i) HWY_ATTR {
    tile::Load<4>(a.data + i * 64, a.stride);
    tile::LoadOnce<6>(b0 + i * 1024, 64);
    TileDot<kSigned, 0, 4, 6>();
    tile::LoadOnce<7>(b1 + i * 1024, 64);
    TileDot<kSigned, 1, 4, 7>();
    tile::LoadOnce<6>(b2 + i * 1024, 64);
    TileDot<kSigned, 2, 4, 6>();
    tile::LoadOnce<7>(b3 + i * 1024, 64);
    TileDot<kSigned, 3, 4, 7>();
  });
  pending.FinishAll();
  tile::Store<0>(out, 256), tile::Store<1>(out + 16, 256), tile::Store<2>(out + 32, 256), tile::Store<3>(out + 48, 256);
}

// 32 rows x 64 columns.
template <bool kSigned>
HWY_INLINE void RunTwoColumns(TileRowGroups::Group a0, TileRowGroups::Group a1, int64_t k_tiles,
                              const int8_t* const b[4], int32_t* acc, PendingRows& pending) {
  const int64_t at_once = internal::TilesOfKAtOnce(k_tiles);
  for (int64_t i = 0; i < k_tiles; i += at_once) {
    const int64_t count = std::min(k_tiles - i, at_once);
    for (int64_t c = 0; c < 4; c += 2) {
      Tile2x2<kSigned>({a0.data + i * 64, a0.stride}, {a1.data + i * 64, a1.stride}, count, b[c] + i * 1024,
                       b[c + 1] + i * 1024, i != 0, acc + c * 16, pending);
    }
  }
}

// Rows r to r + 32, or as many as there are, of one block; the sums.
template <bool kSigned>
HWY_INLINE int32_t* RunTileProducts(const TileRowGroups& x, int64_t r, int64_t left, int64_t k_tiles,
                                    const ColumnsOfBlock& b, PendingRows& pending) {
  const bool two = left > 16 && b.columns > 32;
  int32_t* acc = pending.Begin(two ? internal::TilesOfKAtOnce(k_tiles) : k_tiles);
  const auto a0 = x.At(r / 16);
  if (left <= 16) {
    Tile1x4<kSigned>(a0, k_tiles, b.panels, acc, pending);
  } else if (two) {
    RunTwoColumns<kSigned>(a0, x.At(r / 16 + 1), k_tiles, b.panels, acc, pending);
  } else {
    Tile2x2<kSigned>(a0, x.At(r / 16 + 1), k_tiles, b.panels[0], b.panels[1], false, acc, pending);
    for (int64_t i = 0; i < 32; ++i) std::memset(acc + i * 64 + 32, 0, 32 * sizeof(int32_t));
  }
  return acc;
}

// All rows through some blocks, 32 rows at a time.
template <bool kSigned>
void RunTileBlocks(const internal::SegmentArgs& args, const GemmOutput& y, Range blocks, const TileRowGroups& x,
                   int64_t first, int64_t rows, PendingRows& pending) {
  TileBlock* some = pending.NextBlocks();
  const int64_t k_tiles = y.w->k_padded() / 64;
  for (int64_t r = 0; r < rows; r += 32) {
    const int64_t left = std::min<int64_t>(rows - r, 32);
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      TileBlock& block = some[i - blocks.begin];
      if (r == 0) {
        block.place = BeginProducts(args.x, Compensation::kZeroPoint, y, i, &block.columns);
        WidenBlock<true>(*y.w, args.wide + (i - blocks.begin) * 64 * y.w->k_padded(), &block.place);
      }
      int32_t* acc = RunTileProducts<kSigned>(x, r, left, k_tiles, block.place, pending);
      if (r == 0) {  // not before the products: the tables of both together are more than a core looks ahead
        FillEpilogue(args.x, y, rows, &block.columns);
        block.tile = TileOf(args.x, y, block.place, {first, first + rows}, &block.columns, acc);
        block.tile.begin = block.columns.init;
        ChooseStore(block.tile);
      }
      pending.End(&block.tile, first + r, static_cast<int>(left));
    }
  }
}

// The blocks behind `end` in segment s, or the first ones of the segment after it; 32 rows alone would only wait for both.
inline WeightsAhead AheadOf(const internal::SegmentArgs& args, int s, Range blocks, int64_t at_once, int64_t rows) {
  const int64_t steps = (rows + 31) / 32 * (blocks.end - blocks.begin) * 2 * args.segments[s].y->w->k_padded() / 64;
  const bool same = blocks.end < args.segments[s].blocks.end;
  if (rows <= 32 || (!same && s + 1 == args.count)) return {};
  const internal::Segment& next = args.segments[same ? s : s + 1];
  const int64_t begin = same ? blocks.end : next.blocks.begin;
  return {*next.y->w, begin, std::min(begin + at_once, next.blocks.end), steps};
}

// `rows` rows from `first` on through all segments.
template <bool kSigned>
void RunTileRows(const internal::SegmentArgs& args, int64_t first, int64_t rows, PendingRows& pending) {
  const int64_t k = args.segments[0].y->w->k(), at_once = internal::TileBlocksAtOnce(k);
  const TileRowGroups x = PrepareTileRows(args, first, rows, k);
  for (int s = 0; s < args.count; ++s) {
    const internal::Segment& segment = args.segments[s];
    for (int64_t b = segment.blocks.begin; b < segment.blocks.end; b += at_once) {
      const Range blocks = {b, std::min(b + at_once, segment.blocks.end)};
      pending.ahead = AheadOf(args, s, blocks, at_once, rows);
      RunTileBlocks<kSigned>(args, *segment.y, blocks, x, first, rows, pending);
    }
  }
}

inline void RunTiles(const internal::SegmentArgs& args) {
  if (args.count == 0) return;
  const int64_t k = args.segments[0].y->w->k();
  const int64_t at_once = internal::ShareOfRows(args.rows.end - args.rows.begin, internal::TileRowsAtOnce(k), 32);
  PendingRows pending;
  tile::LoadConfig(tile::kWholeTiles);
  for (int64_t first = args.rows.begin; first < args.rows.end; first += at_once) {
    const int64_t rows = std::min(args.rows.end - first, at_once);
    args.x.dtype == quant::DType::kS8 ? RunTileRows<true>(args, first, rows, pending)
                                      : RunTileRows<false>(args, first, rows, pending);
  }
  tile::Release();
  pending.FinishAll();
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
