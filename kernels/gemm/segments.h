// Inside of Gemm and Qkv: runs of column blocks of several outputs over the same rows of one input.
#ifndef OCTAVO_KERNELS_GEMM_SEGMENTS_H_
#define OCTAVO_KERNELS_GEMM_SEGMENTS_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "octavo/kernels/forms.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels::internal {

struct Segment {
  const GemmOutput* y = nullptr;
  Range blocks;
};

struct SegmentArgs {
  GemmInput x;
  const Segment* segments = nullptr;  // all with the same k
  int count = 0;
  Range rows;
  void* scratch = nullptr;
  Tuning tuning;
  int8_t* wide = nullptr;  // room for widened weights with steps, where there are some
};

// One form of the product.
struct GemmDescriptor {
  std::string_view name;      // what it multiplies in, the Arch
  std::string_view few_rows;  // the same with at most kSmallRows
  Tile tile;
  void (*run)(const SegmentArgs& args);
  size_t (*scratch)(quant::DType x, int64_t k);  // GemmScratchBytes
  size_t (*wide)(int64_t k);                     // and of SegmentArgs::wide
};
extern const Forms<GemmDescriptor> kGemmForms;

// GemmDescriptor::run, where outputs are head-major for one batch at a time: 64 columns in one head of one batch are stored like rows, the
// rest through a copy (3 to 5 % more time with AVX-512 VNNI, 11 to 22 % with AMX). Fewer rows than kRowsOfBatch would read the weights
// too often.
inline constexpr int64_t kRowsOfBatch = 32;
void RunBatches(Arch arch, SegmentArgs args);

// Rows that are worked through together, at most: their packed form (2 bytes an element for the s16 form, else 1) stays
// within 192 KB, so that it lives in L2 beside the weights of one column block. A multiple of 6, the height of a tile, and
// never fewer than the small kernels take at once.
inline constexpr int64_t kMostRowsAtOnce = 144;
inline int64_t MostRowsAtOnce(int64_t k, int64_t bytes_per_element) {
  const int64_t row_bytes = (k + 3) / 4 * 4 * bytes_per_element;
  return std::clamp<int64_t>(int64_t{192} * 1024 / row_bytes / 6 * 6, 12, kMostRowsAtOnce);
}
// Even shares of `rows`, of at most `most` (a multiple of `unit`): a few rows left over would read all weights for themselves.
inline int64_t ShareOfRows(int64_t rows, int64_t most, int64_t unit) {
  const int64_t shares = std::max<int64_t>((rows + most - 1) / most, 1);
  return ((rows + shares - 1) / shares + unit - 1) / unit * unit;
}
inline int64_t RowsAtOnce(int64_t rows, int64_t k, int64_t bytes_per_element) {
  return ShareOfRows(rows, MostRowsAtOnce(k, bytes_per_element), 6);
}

// Where Tuning::decodes_once: as many rows share the decoding of weights to 16 bits, if a block of them then
// lies in L2 beside the rows.
inline constexpr int64_t kDecodingRows = 24;
inline constexpr int64_t kMostDecodedK = 1536;
// Of 16 bits, for a group of rows as s16 and as u8; whole lines.
inline int64_t WideElements(int64_t k) { return (MostRowsAtOnce(k, 2) * ((k + 3) / 4 * 4) * 3 / 2 + 31) / 32 * 32; }

// At most as many rows run by the small kernels (small-inl.h), which keep so many rows of sums of 64 columns in L1 (12 KB) before their
// ends.
inline constexpr int64_t kSmallRows = 8;
inline constexpr int64_t kRowsOfSums = 48;

// The same for AMX, whose rows are padded to whole tiles of 64 bytes, and by a line where 16 of them would fall into
// few sets of L1.
inline int64_t TileStride(int64_t k) {
  const int64_t bytes = (k + 63) / 64 * 64;
  return bytes % 1024 == 0 ? bytes + 64 : bytes;
}
// Weights are read once for so many rows: 640 KB of these and twice 200 KB of weights leave half of the 2 MB of L2 to the output.
inline constexpr int64_t kMostTileRows = 256;
// Blocks whose weights stay in L2 (2 MB wherever there is AMX) while all rows pass and the next ones come.
inline constexpr int64_t kMostTileBlocks = 8;
inline int64_t TileBlocksAtOnce(int64_t k) {
  return std::clamp<int64_t>(int64_t{200} * 1024 / (TileStride(k) * 64), 1, kMostTileBlocks);
}
inline int64_t TileRowsAtOnce(int64_t k) {
  return std::clamp<int64_t>(int64_t{640} * 1024 / TileStride(k) / 32 * 32, 32, kMostTileRows);
}
// Tiles of 64 k: 32 rows stay in L1 (24 KB of 48) to k = 1024; beyond, a column of tiles is 12 tiles of k or fewer at a time, so that at
// least its second half finds them there.
inline constexpr int64_t kTileDepth = 64, kWholeDepth = 16, kPartDepth = 12;
inline int64_t TilesOfKAtOnce(int64_t k_tiles) {
  if (k_tiles <= kWholeDepth) return k_tiles;
  const int64_t parts = (k_tiles + kPartDepth - 1) / kPartDepth;
  return (k_tiles + parts - 1) / parts;
}

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_GEMM_SEGMENTS_H_
