// Float activations times weights of 4 or 8 bits with one scale (and zero point) for every block of k in each column: the
// product of decoding text, bound by the reading of weights.
//
//   y[m][n] = sum over blocks of scale[block][n] * (sum over k in the block of x[m][k] * (q[k][n] - z[block][n])) + bias[n]
//
// Bits are equal for every Arch and every split: both sums are one chain of fused multiply-adds from +0 in the order of k,
// whatever the vector width, and q - z is exact. Against the float product of the dequantized weights only the rounding
// differs: each weight is not rounded to float first, and the scale is applied once a block.
#ifndef OCTAVO_KERNELS_BLOCKED_BLOCKED_H_
#define OCTAVO_KERNELS_BLOCKED_BLOCKED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

// Weights as ONNX's blocked DequantizeLinear has them; 4-bit types hold two elements a byte, the first in the low half.
struct BlockedSource {
  const void* data = nullptr;
  quant::DType dtype = quant::DType::kU4;  // kU4, kS4, kU8 or kS8
  int64_t k = 0;
  int64_t n = 0;
  int64_t block = 0;                 // along k, a multiple of 16 up to 1024; the last may be shorter
  bool transposed = false;           // false: data [k][n], scale and zero point [blocks][n]; true: [n][k], [n][blocks]
  const float* scale = nullptr;      // finite
  const void* zero_point = nullptr;  // of `dtype`; null: 0
};

// Panels of 16 columns; a panel is a run of records, one a block: 16 scales, then the codes [block / 8][16][8 nibbles] or
// [block / 4][16][4 bytes], so that one 32-bit lane holds consecutive k of one column. Codes are unsigned (s4 + 8,
// s8 + 128).
class PackedBlocked {
 public:
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int bits() const { return bits_; }
  int64_t block() const { return block_; }
  int64_t blocks() const { return (k_ + block_ - 1) / block_; }
  int64_t panels() const { return (n_ + 15) / 16; }
  int64_t record_bytes() const { return 64 + block_ * 2 * bits_; }
  const uint8_t* Panel(int64_t index) const { return data_.data() + index * blocks() * record_bytes(); }
  // [blocks][16] of the panel; null where every zero point is the middle, 8 or 128.
  const uint8_t* Zeros(int64_t panel) const {
    return zeros_.size() == 0 ? nullptr : zeros_.data() + panel * blocks() * 16;
  }
  // q of a column: the code at place i of a block.
  int Code(int64_t block, int64_t i, int64_t n) const {
    const uint8_t* codes = Panel(n / 16) + block * record_bytes() + 64;
    if (bits_ == 8) return codes[i / 4 * 64 + n % 16 * 4 + i % 4];
    return (codes[i / 8 * 64 + n % 16 * 4 + i % 8 / 2] >> (i % 2 * 4)) & 15;
  }
  int Zero(int64_t block, int64_t n) const {
    return zeros_.size() == 0 ? 1 << (bits_ - 1) : Zeros(n / 16)[block * 16 + n % 16];
  }
  float Scale(int64_t block, int64_t n) const {
    float scale;
    std::memcpy(&scale, Panel(n / 16) + block * record_bytes() + n % 16 * 4, 4);
    return scale;
  }
  // What a product of one row reads.
  size_t bytes() const { return data_.size() + zeros_.size(); }
  // As those of PackedWeights.
  static constexpr size_t kArrays = 2;
  std::vector<WeightBytes> Arrays() const { return {data_.bytes(), zeros_.bytes()}; }
  static std::optional<PackedBlocked> Of(const BlockedSource& source, std::span<const WeightBytes> arrays);

 private:
  friend std::expected<PackedBlocked, std::string> PackBlocked(const BlockedSource& source);
  static PackedBlocked FormOf(const BlockedSource& source);  // all but the arrays
  int64_t k_ = 0;
  int64_t n_ = 0;
  int64_t block_ = 0;
  int bits_ = 4;
  WeightArray<uint8_t> data_;
  WeightArray<uint8_t> zeros_;  // empty: all are the middle
};

// Refuses, with a sentence: other types, an empty matrix, a block that is no multiple of 16 up to 1024.
std::expected<PackedBlocked, std::string> PackBlocked(const BlockedSource& source);

struct BlockedArgs {
  const float* x = nullptr;  // [m][k]
  int64_t x_stride = 0;
  const PackedBlocked* w = nullptr;
  const float* bias = nullptr;  // n values or null
  float* y = nullptr;           // [m][n]
  int64_t y_stride = 0;
};

// Rows that the small tiles take; rows of the float tiles that share decoded weights.
namespace blocked_sizes {
inline constexpr int64_t kSmallRows = 8;
inline constexpr int64_t kRowsAtOnce = 96;
// Whole blocks, 128 of k or one block: 64 columns of them are 32 KB of floats.
inline constexpr int64_t kChunk = 128;
inline int64_t ChunkBlocks(int64_t block) { return std::max<int64_t>(1, kChunk / block); }
}  // namespace blocked_sizes

// Scratch that one call of GemmBlocked needs.
size_t BlockedScratchBytes(Arch arch, const PackedBlocked& w);

// Of more than a few rows; how threads split them.
Tile BlockedTile(Arch arch);

// Rows x column blocks (of kColumnBlock) of y. Up to 8 rows stream the weights once; more rows decode 64 columns at a time
// to float and reuse them. `scratch`: 64-byte aligned, of this call alone.
void GemmBlocked(Arch arch, const BlockedArgs& args, Range rows, Range blocks, void* scratch);

// The truth that every other form is tested against; plain loops.
void GemmBlockedReference(const BlockedArgs& args, Range rows, Range blocks);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_BLOCKED_BLOCKED_H_
