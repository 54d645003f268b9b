// Rows as codes of 8 bits times weights of 4 or 8 bits in blocks: what "int8 activations, int4 weights" is elsewhere (torchao's
// Int8DynamicActivationInt4Weight, MatMulNBits with accuracy_level 4). Each block of a row has its own scale, made at run time:
//
//   s[m][b] = max(max |x[m][k]| / 127, 2^-100) over the k of block b       c[m][k] = rne(x[m][k] / s[m][b])
//   y[m][n] = sum over blocks of (sum over k in the block of c[m][k] * (q[k][n] - z[b][n])) * (scale[b][n] * s[m][b]) + bias[n]
//
// The inner sums are exact integers below 2^24, the outer one a chain of fused multiply-adds from +0 in the order of blocks: bits
// are equal for every Arch and every split. A block with an infinity or NaN makes its row NaN. Against the float product a weight
// of 4 bits costs a fifth of the instructions: one row is bound by memory (kernels/DESIGN.md).
#ifndef OCTAVO_KERNELS_BLOCKED_BLOCKED_INT8_H_
#define OCTAVO_KERNELS_BLOCKED_BLOCKED_INT8_H_

#include "octavo/kernels/blocked/blocked.h"

namespace octavo::kernels {

// The largest w.block() that the functions here take: beyond it the sum of a block, 255 * 127 a product, could leave the integers
// that a float holds.
inline constexpr int64_t kMaxBlockOfCodes = 512;

namespace internal {
// The places in a row.
inline int64_t BlockedCodeBytes(const PackedBlocked& w) {
  return (w.blocks() * w.block() * (w.bits() == 8 ? 2 : 1) + 63) / 64 * 64;
}
inline const float* BlockedRowScales(const PackedBlocked& w, const uint8_t* row) {
  return reinterpret_cast<const float*>(row + BlockedCodeBytes(w));
}
inline const float* BlockedRowSums(const PackedBlocked& w, const uint8_t* row) {
  return BlockedRowScales(w, row) + w.blocks();
}
}  // namespace internal

// A row as the product reads it: the codes of all blocks in the order of the Arch, a scale for each block, and for zero points the
// sum of its codes (a float, exact), or where all of them are the middle of the range what they take off (an int32). 64-byte aligned.
inline int64_t BlockedRowBytes(const PackedBlocked& w) {
  return (internal::BlockedCodeBytes(w) + w.blocks() * 2 * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

// x: [rows][k] f32, out: [rows][BlockedRowBytes(w)].
void QuantizeBlocks(Arch arch, const PackedBlocked& w, const float* x, int64_t x_stride, int64_t rows, uint8_t* out);

struct BlockedInt8Args {
  const uint8_t* x = nullptr;  // what QuantizeBlocks wrote on the same Arch
  const PackedBlocked* w = nullptr;
  const float* bias = nullptr;  // n values or null
  float* y = nullptr;           // [m][n]
  int64_t y_stride = 0;
  Tuning tuning = DetectedTuning();
};

namespace internal {
// 64 columns x some blocks of k stay in L1 while so many rows pass, in tiles of up to kMostCodeRows (half of them without VNNI on
// zmm). AMX takes 16 rows and more of kCodeTileRows, as many of them at once as pay for decoding the weights.
inline constexpr int64_t kCodeRowsAtOnce = 96, kCodeDepthAtOnce = 512, kMostCodeRows = 8;
inline constexpr int64_t kCodeTileRows = 16, kCodeTileRowsAtOnce = 256;
}  // namespace internal
// Sums of 64 columns in floats; for AMX also their weights and two tiles of whole sums.
inline constexpr size_t kBlockedInt8ScratchBytes = size_t{internal::kCodeTileRowsAtOnce} * 64 * sizeof(float) +
                                                   size_t{internal::kCodeDepthAtOnce} * 64 + size_t{2} * 1024;

// Of more than a few rows; how threads split them.
Tile BlockedInt8Tile(Arch arch);

// Rows x column blocks (of kColumnBlock) of y. `scratch`: 64-byte aligned, of this call alone.
void GemmBlockedInt8(Arch arch, const BlockedInt8Args& args, Range rows, Range blocks, void* scratch);

namespace internal {
// The truth; its codes stand in the order of k.
void QuantizeBlocksReference(const PackedBlocked& w, const float* x, int64_t x_stride, int64_t rows, uint8_t* out);
void GemmBlockedInt8Reference(const BlockedInt8Args& args, Range rows, Range blocks, void*);
}  // namespace internal

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_BLOCKED_BLOCKED_INT8_H_
