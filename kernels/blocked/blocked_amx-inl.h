// GemmBlockedInt8 for 16 rows and more with 4-bit weights on AMX tiles, 16 rows x 16 columns at a time. The weights of 64 columns and
// some blocks are decoded once, less their zero points (within +-15, so that rows need no sums), into columns of B tiles, which all
// rows pass. A block of 32 fills half of a tile's k; its sums become floats while the next block is multiplied: the products have a
// unit of their own. Per target: AVX-512 VNNI, for the rest.
#if defined(OCTAVO_KERNELS_BLOCKED_BLOCKED_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_BLOCKED_BLOCKED_AMX_INL_H_
#undef OCTAVO_KERNELS_BLOCKED_BLOCKED_AMX_INL_H_
#else
#define OCTAVO_KERNELS_BLOCKED_BLOCKED_AMX_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/blocked/store-inl.h"
#include "octavo/kernels/tile/amx.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// The k of a tile's step: the longest that divides a block.
inline int64_t TileStepOf(int64_t block) {
  for (const int64_t step : {64, 48, 32}) {
    if (block % step == 0) return step;
  }
  return 16;
}

// Tiles 0 and 1 are sums, 4 rows, 6 columns.
inline tile::TileConfig BlockedTiles(int64_t step) {
  tile::TileConfig c = tile::kWholeTiles;
  c.row_bytes[4] = static_cast<uint16_t>(step);
  c.rows[6] = static_cast<uint8_t>(step / 4);
  return c;
}

// Blocks `range` of the panels of 64 columns, decoded: [4][range][block / 4][16][4].
HWY_NOINLINE void DecodeForTiles(const PackedBlocked& w, int64_t first_panel, Range range, int8_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<int32_t> d;
  const hn::ScalableTag<int8_t> d8;
  const auto mask = hn::Set(d, 0x0F0F0F0F);
  for (int p = 0; p < 4; ++p) {
    const int64_t panel = std::min(first_panel + p, w.panels() - 1);  // one that does not exist is not stored
    const uint8_t* record = w.Panel(panel) + range.begin * w.record_bytes();
    for (int64_t b = range.begin; b < range.end; ++b, record += w.record_bytes()) {
      auto zero = hn::Set(d8, int8_t{8});
      if (w.Zeros(0) != nullptr) {  // of each column four times
        const hn::Rebind<uint8_t, decltype(d)> narrow;
        const auto lanes = hn::PromoteTo(d, hn::LoadU(narrow, w.Zeros(panel) + b * 16));
        zero = hn::BitCast(d8, hn::Mul(lanes, hn::Set(d, 0x01010101)));
      }
      const auto* codes = reinterpret_cast<const int32_t*>(record + 64);
      for (int64_t i = 0; i < w.block() / 8; ++i, out += 128) {
        const auto c = hn::Load(d, codes + i * 16);
        asm volatile("prefetcht2 (%0)" ::"r"(codes + i * 16 + 512));
        hn::Store(hn::Sub(hn::BitCast(d8, hn::And(c, mask)), zero), d8, out);
        hn::Store(hn::Sub(hn::BitCast(d8, hn::And(hn::ShiftRight<4>(c), mask)), zero), d8, out + 64);
      }
    }
  }
}

// What the rows of a call share, and where a chunk of blocks stands.
struct TileChunk {
  const PackedBlocked* w;
  const uint8_t* x;  // of the first row
  int64_t first_panel;
  Range range;
  const int8_t* weights;  // what DecodeForTiles wrote
  int32_t* sums;          // [2][16][16]
  float* acc;             // [rows][64]
};

// 16 rows from `row` on x one panel through all blocks of a chunk. The sums of a block become floats, in registers, while the tiles
// multiply the next one; they are few enough for the core to look beyond them.
class TileGroup {
 public:
  TileGroup(const TileChunk& at, int64_t row, int panel)
      : at_(at),
        length_(at.w->block()),
        step_(TileStepOf(length_)),
        stride_(BlockedRowBytes(*at.w)),
        record_bytes_(at.w->record_bytes()),
        x_(at.x + row * stride_ + at.range.begin * length_),
        row_scales_(
            reinterpret_cast<const uint8_t*>(internal::BlockedRowScales(*at.w, at.x + row * stride_) + at.range.begin)),
        b_(at.weights + panel * (at.range.end - at.range.begin) * length_ * 16),
        record_(at.w->Panel(std::min(at.first_panel + panel, at.w->panels() - 1)) + at.range.begin * record_bytes_),
        acc_(at.acc + row * 64 + panel * 16) {}

  HWY_NOINLINE void Run() {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::ScalableTag<float> d;
    hn::Vec<decltype(d)> acc[16];
    HWY_UNROLL(16)
    for (int r = 0; r < 16; ++r) acc[r] = hn::Load(d, acc_ + r * 64);
    Multiply<0>();
    tile::Store<0>(at_.sums, 64);
    int64_t left = at_.range.end - at_.range.begin;
    for (; left > 2; left -= 2) {
      Multiply<1>();
      Add(at_.sums, acc);
      tile::Store<1>(at_.sums + 256, 64);
      Multiply<0>();
      Add(at_.sums + 256, acc);
      tile::Store<0>(at_.sums, 64);
    }
    if (left == 2) Multiply<1>();
    Add(at_.sums, acc);
    if (left == 2) {
      tile::Store<1>(at_.sums + 256, 64);
      Add(at_.sums + 256, acc);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < 16; ++r) hn::Store(acc[r], d, acc_ + r * 64);
  }

 private:
  // The tile = the products of the next block.
  template <int kSums>
  HWY_INLINE void Multiply() {
    tile::Zero<kSums>();
    for (int64_t k = 0; k < length_; k += step_, x_ += step_, b_ += step_ * 16) {
      tile::Load<4>(x_, stride_);
      tile::Load<6>(b_, 64);
      tile::DotSS<kSums, 4, 6>();
    }
  }
  // acc += the sums of a block times the scales of its rows and columns.
  HWY_INLINE void Add(const int32_t* sums, hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> (&acc)[16]) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::ScalableTag<float> d;
    const hn::ScalableTag<int32_t> di;
    const auto scale = hn::Load(d, reinterpret_cast<const float*>(record_));
    HWY_UNROLL(16)
    for (int r = 0; r < 16; ++r) {
      const auto of_row = hn::Set(d, *reinterpret_cast<const float*>(row_scales_ + r * stride_));
      acc[r] = hn::MulAdd(hn::ConvertTo(d, hn::Load(di, sums + r * 16)), hn::Mul(scale, of_row), acc[r]);
    }
    record_ += record_bytes_, row_scales_ += sizeof(float);
  }

  const TileChunk& at_;
  int64_t length_, step_, stride_, record_bytes_;
  const uint8_t* x_;
  const uint8_t* row_scales_;
  const int8_t* b_;
  const uint8_t* record_;
  float* acc_;
};

// y of a block of 64 columns for `count` rows from `first` on, at most kCodeTileRowsAtOnce; args.x has 16 rows up to the last of
// them. Tiles are whole: a rest of fewer than 16 rows is multiplied with those before it, whose sums nobody stores.
inline void TileBlock(const BlockedInt8Args& args, int64_t first, int64_t count, int64_t block, float* acc) {
  const PackedBlocked& w = *args.w;
  const int64_t whole = count / 16 * 16, rest = count - whole, row_bytes = BlockedRowBytes(w);
  auto* weights = reinterpret_cast<int8_t*>(acc + internal::kCodeTileRowsAtOnce * 64);
  TileChunk at{.w = &w,
               .x = args.x + first * row_bytes,
               .first_panel = block * 4,
               .range = {},
               .weights = weights,
               .sums = reinterpret_cast<int32_t*>(weights + internal::kCodeDepthAtOnce * 64),
               .acc = acc};
  std::memset(acc, 0, static_cast<size_t>(rest > 0 ? whole + 16 : whole) * 64 * sizeof(float));
  const int64_t at_once = internal::kCodeDepthAtOnce / w.block();
  for (int64_t k = 0; k < w.blocks(); k += at_once) {
    at.range = {k, std::min(w.blocks(), k + at_once)};
    DecodeForTiles(w, at.first_panel, at.range, weights);
    for (int panel = 0; panel < 4; ++panel) {
      for (int64_t row = 0; row < whole; row += 16) TileGroup(at, row, panel).Run();
      TileChunk last = at;
      last.x += (count - 16) * row_bytes, last.acc += whole * 64;
      if (rest > 0) TileGroup(last, 0, panel).Run();
    }
  }
  const auto columns = static_cast<int>(std::min<int64_t>(w.n() - block * kColumnBlock, kColumnBlock));
  StoreRows(args, acc, first, whole, block * kColumnBlock, columns);
  StoreRows(args, acc + (whole + 16 - rest) * 64, first + whole, rest, block * kColumnBlock, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // OCTAVO_KERNELS_BLOCKED_BLOCKED_AMX_INL_H_
