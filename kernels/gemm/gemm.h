// Int8 matrix product with epilogue:
//   y = quantize(activation(float(sum_k (x - zx) * w) * (sx * sw[n]) + bias[n]) * post_scale[n] + residual[m][n]).
//
//   auto w = PackWeights({.data = weights, .dtype = DType::kS8, .k = 384, .n = 1536});   // once; may refuse
//   GemmArgs args{.x = {...}, .y = {.w = &*w, ...}};
//   Gemm(arch, args, {0, m}, {0, ColumnBlocks(n)}, scratch);                              // any split of rows and
//   blocks
//
// Bits are equal for every Arch and every split (quant/numeric/README.md): the integer sum is exact, every float operation
// below is one IEEE operation in the written order, nothing is contracted.
#ifndef OCTAVO_KERNELS_GEMM_GEMM_H_
#define OCTAVO_KERNELS_GEMM_GEMM_H_

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/kernels/arch/arch.h"
#include "octavo/kernels/simd/aligned.h"
#include "octavo/kernels/simd/weights.h"
#include "octavo/kernels/tile/tile.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

// Half-open.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

enum class Activation : uint8_t {
  kNone,
#define OCTAVO_ACTIVATION(Name, name, scalar, vector) k##Name,
#include "octavo/kernels/gemm/activations.def"
#undef OCTAVO_ACTIVATION
};
// "none", or the name in activations.def.
std::string_view Name(Activation activation);
// False for a word that names none.
bool ActivationFromName(std::string_view name, Activation* activation);
float ApplyActivation(Activation activation, float x);

// Weights as a model holds them.
struct WeightSource {
  const void* data = nullptr;
  quant::DType dtype = quant::DType::kS8;  // kS8, kU8 or kU4
  int64_t k = 0;
  int64_t n = 0;
  bool transposed = false;              // false: [k][n], true: [n][k]
  const int32_t* zero_point = nullptr;  // null: 0; one value, or n values with zero_point_per_column
  bool zero_point_per_column = false;
  // Of kU4, [k][n], two a byte, the first in the low half: kU4 too, [ceil(k / kStepRows)][n]. The weight is step * (code - step_zero), which
  // s8 holds.
  const void* step = nullptr;
  const void* step_zero = nullptr;  // null: 0
};
// Rows of 4-bit weights that share a step and a zero in a column.
inline constexpr int64_t kStepRows = 16;

// Canonical packing of all ISAs: [n/16][k/4][16][4] s8, zero point already subtracted, k padded to 64 and n to 16 with
// zeros. The sums over k of each (padded) column stand beside it.
// Weights of 4 bits with steps take 4.5 bits each and are the same integers to every product: 64 k of a panel are kSteppedUnit bytes, a step
// (low half) and a zero for 16 columns of each 16 k, then 8 lines of 8 k, whose byte [column][i] holds the codes of k + i and, in its
// high half, k + 4 + i.
class PackedWeights {
 public:
  PackedWeights() = default;
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t k_padded() const { return (k_ + 63) / 64 * 64; }
  int64_t n_padded() const { return (n_ + 15) / 16 * 16; }
  const int8_t* data() const { return data_.data(); }
  bool stepped() const { return stepped_; }
  static constexpr int64_t kSteppedUnit = 64 + 8 * 64;
  int64_t panel_bytes() const { return stepped_ ? k_padded() / 64 * kSteppedUnit : k_padded() * 16; }
  const int8_t* Panel(int64_t index) const { return data_.data() + index * panel_bytes(); }
  int At(int64_t k, int64_t n) const {
    const int8_t* panel = Panel(n / 16);
    if (!stepped_) return panel[k / 4 * 64 + n % 16 * 4 + k % 4];
    const auto* unit = reinterpret_cast<const uint8_t*>(panel) + k / 64 * kSteppedUnit;
    const int step = unit[k % 64 / kStepRows * 16 + n % 16];
    const int code = unit[64 + k % 64 / 8 * 64 + n % 16 * 4 + k % 4] >> (k % 8 / 4 * 4) & 15;
    return (step & 15) * (code - (step >> 4));
  }
  const int32_t* column_sums() const { return sums_.data(); }
  // The certificate of a panel: how many quads of k a saturating s16 lane (vpmaddubsw) holds exactly, for every u8
  // activation. 2: any two neighbouring quads, added up; 1: each alone; 0: some pair of weights can saturate.
  int SafeQuads(int64_t panel) const { return safe_quads_.data()[panel]; }
  size_t bytes() const { return data_.size() + sums_.size() * sizeof(int32_t) + safe_quads_.size(); }
  // What a file keeps of it, and what it is made of again without reading the source's data. None where these are no arrays of such
  // weights: their sizes alone are looked at, and no content lets a product leave its memory.
  static constexpr size_t kArrays = 3;
  std::vector<WeightBytes> Arrays() const { return {data_.bytes(), sums_.bytes(), safe_quads_.bytes()}; }
  static std::optional<PackedWeights> Of(const WeightSource& source, std::span<const WeightBytes> arrays);

 private:
  friend std::expected<PackedWeights, std::string> PackWeights(const WeightSource& source);
  explicit PackedWeights(const WeightSource& source)
      : k_(source.k), n_(source.n), stepped_(source.dtype == quant::DType::kU4) {}
  int64_t k_ = 0;
  int64_t n_ = 0;
  bool stepped_ = false;
  WeightArray<int8_t> data_;
  WeightArray<int32_t> sums_;
  WeightArray<uint8_t> safe_quads_;  // one a panel
};

// Refuses, with a sentence: a column whose sum could leave int32 (255 * sum_k |w| >= 2^31: never below k = 65,794), a
// weight that minus its zero point leaves s8, another dtype, weights of 4 bits that are transposed or have no steps, an empty matrix.
std::expected<PackedWeights, std::string> PackWeights(const WeightSource& source);

// The left operand, [m][k] row-major.
struct GemmInput {
  const void* data = nullptr;
  quant::DType dtype = quant::DType::kU8;  // kU8 or kS8
  int64_t stride = 0;                      // elements from row to row
  int32_t zero_point = 0;
  float scale = 1.0f;
  const float* row_scale = nullptr;  // one a row, instead of `scale`
  const uint8_t* row_zero_point =
      nullptr;  // of kU8 with row_scale: one a row, added to `zero_point`; 255 at most together
};

// Outputs by heads, [batch][head][row][size]: what attention and its caches take, without a Transpose. Strides in elements.
struct HeadMajor {
  int64_t size = 0;  // columns of a head; 0: y is row-major
  int64_t head_stride = 0;
  int64_t rows = 1;  // of a batch
  int64_t batch_stride = 0;
};

// One weight matrix and what happens to its columns.
struct GemmOutput {
  const PackedWeights* w = nullptr;
  const float* w_scale = nullptr;  // w_scale_per_column: n values; otherwise one
  bool w_scale_per_column = true;
  const float* bias = nullptr;  // n values, or null: nothing is added
  Activation activation = Activation::kNone;
  const float* post_scale = nullptr;  // n values that multiply what the activation gives, or null
  const float* residual = nullptr;    // [m][n], added after all that, or null
  int64_t residual_stride = 0;        // elements from row to row
  void* y = nullptr;
  // kF32: stored as it is; kBF16: rounded; kU8, kS8, kE4M3FN, kE5M2: QuantizeLinear, saturating.
  quant::DType dtype = quant::DType::kF32;
  float scale = 1.0f;      // of y, where it is quantized
  int32_t zero_point = 0;  // of kU8 and kS8
  int64_t stride = 0;      // elements from row to row; with heads within a batch and head
  HeadMajor heads = {};    // of y alone: a residual is [m][n] always

  // Where y(row, column) lies, in elements.
  int64_t At(int64_t row, int64_t column) const {
    if (heads.size == 0) return row * stride + column;
    return row / heads.rows * heads.batch_stride + row % heads.rows * stride + column / heads.size * heads.head_stride +
           column % heads.size;
  }
};

// Choices that differ by CPU and change speed alone, never a bit. Tests draw them.
struct Tuning {
  // Many rows share the decoding of weights to 16 bits (without VNNI). Where shifts have pipes beside the products (Zen), decoding a block
  // once only costs: AVX2 on Zen 4, of the peak, weights from memory: M = 24 0.74 with it, 0.89 without, 64 0.90 and 0.92, 128 0.90 and
  // 0.93. On Ice Lake's three pipes it saves a ninth of the vector operations: 0.92 with it, 0.86 without.
  bool decodes_once = true;
  // One row on ymm reads one panel of weights after the other, not four at once. From memory, GB/s: Zen 4 28 so, 17 by four; Zen 3 18, by
  // four 24, where plain reading gives 24; Ice Lake too likes four.
  bool one_stream = true;
  // 1 to 8 rows times weights in blocks ask for them 2 KB ahead: Intel with AVX-VNNI reads 92 % of what plain reading gives instead of
  // 76 at one row, 86 instead of 79 at two (docs/lab/blocked-weights.md). Zen 4 loses up to 40 % by that.
  bool asks_near = false;
};
constexpr Tuning TuningOf(const CpuFeatures& f) {
  return {.decodes_once = !f.four_pipes, .one_stream = f.zen4 || f.avx_vnni, .asks_near = f.avx_vnni && !f.zen4};
}
inline Tuning DetectedTuning() { return TuningOf(DetectedFeatures()); }

struct GemmArgs {
  GemmInput x;
  GemmOutput y;
  Tuning tuning = DetectedTuning();
};

// The unit in which callers split columns.
inline constexpr int64_t kColumnBlock = 64;
inline constexpr int64_t ColumnBlocks(int64_t n) { return (n + kColumnBlock - 1) / kColumnBlock; }

// Scratch that one call of Gemm or Qkv needs; depends on nothing but these. May be 0. stepped: of the weights, one at least.
size_t GemmScratchBytes(Arch arch, quant::DType x_dtype, int64_t k, bool stepped = false);

// Of more than a few rows; how threads split them (SharesOf in qkv.h).
Tile GemmTile(Arch arch);

// Rows x column blocks of y. `scratch`: GemmScratchBytes, 64-byte aligned, of this call alone. An Arch without a kernel
// of its own uses the next lower one that has one. The CPU must have `arch`.
void Gemm(Arch arch, const GemmArgs& args, Range rows, Range blocks, void* scratch);

// The truth that every other form is tested against; plain loops.
void GemmReference(const GemmArgs& args, Range rows, Range blocks);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_GEMM_H_
