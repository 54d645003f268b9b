// fp8 matrix product with epilogue: y = quantize(activation(sum_k x * w * (sx * sw[n]) + bias[n]) * post_scale[n] +
// residual[m][n]), for one matrix or for 2 to 8 projections of one activation. Operands are E4M3FN or E5M2, each its own.
//
// The sum begins with 0 and takes one product after the other, in order of k, rounded to float32 each time. A product of
// two fp8 values has at most 8 bits, so it is exact, and the sum is the same with and without FMA: bits are equal for
// every split, the interpreter, vdpbf16ps (simd/bf16-inl.h) and every Arch but AMX. Against the exact sum it errs by at most k * 2^-24 * sum |x * w|.
// AMX adds in another order (fp8_amx-inl.h), within the same bound and equal for every split.
#ifndef OCTAVO_KERNELS_FP8_FP8_H_
#define OCTAVO_KERNELS_FP8_FP8_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

// Weights in blocks of 64 columns, [n/64][k][64] codes: byte 2i of a k is column i, byte 2i+1 column 32+i, so that the
// two kinds become 16-bit lanes by a shift. Columns that do not exist are 0.
class PackedFp8 {
 public:
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  quant::DType dtype() const { return dtype_; }
  const uint8_t* Block(int64_t index) const { return data_.data() + index * k_ * 64; }
  uint8_t At(int64_t k, int64_t n) const {
    const int64_t c = n % 64;
    return Block(n / 64)[k * 64 + c % 32 * 2 + c / 32];
  }
  size_t bytes() const { return data_.size(); }
  // As those of PackedWeights.
  static constexpr size_t kArrays = 1;
  std::vector<WeightBytes> Arrays() const { return {data_.bytes()}; }
  static std::optional<PackedFp8> Of(const WeightSource& source, std::span<const WeightBytes> arrays);

 private:
  friend std::expected<PackedFp8, std::string> PackFp8(const WeightSource& source);
  int64_t k_ = 0;
  int64_t n_ = 0;
  quant::DType dtype_ = quant::DType::kE4M3FN;
  WeightArray<uint8_t> data_;
};

// Refuses, with a sentence: a NaN of E4M3FN (the kernels would read it as 480), another dtype, an empty matrix.
std::expected<PackedFp8, std::string> PackFp8(const WeightSource& source);

struct Fp8Output {
  const PackedFp8* w = nullptr;
  GemmOutput y;  // y.w is not looked at
};

// The values of all codes of an fp8 type.
const std::array<float, 256>& Fp8Values(quant::DType dtype);

// Whether fp8 is multiplied as pairs of bf16 by vdpbf16ps, where it may (GainsByBf16Pairs). No Arch of its own:
// the bits are those of the floats. Cooper Lake (avx512) stays with floats, since it gains nothing (32 products a cycle either
// way) and lacks the byte lookups that decode.
constexpr bool Fp8InPairs(Arch arch, bool bf16_pairs) { return bf16_pairs && arch == Arch::kAvx512Vnni; }

inline constexpr int kMaxFp8Outputs = 8;

struct Fp8Args {
  GemmInput x;    // dtype kE4M3FN or kE5M2; no zero point, one scale
  int count = 0;  // 1..kMaxFp8Outputs; all with the same k
  Fp8Output out[kMaxFp8Outputs];
  bool bf16_pairs = GainsByBf16Pairs(DetectedFeatures());  // vdpbf16ps may be used; it changes no bit
};

// Column blocks of all outputs together, in order; each output is rounded up to whole blocks. The unit for splitting.
int64_t Fp8Blocks(const Fp8Args& args);

// Scratch that one call needs. May be 0.
size_t Fp8ScratchBytes(Arch arch, int64_t k);

// Of more than a few rows; how threads split them.
Tile Fp8Tile(Arch arch, bool bf16_pairs);

// Rows x column blocks. `scratch`: Fp8ScratchBytes, 64-byte aligned, of this call alone.
void LinearFp8(Arch arch, const Fp8Args& args, Range rows, Range blocks, void* scratch);

// The truth that every other form is tested against; plain loops.
void LinearFp8Reference(const Fp8Args& args, Range rows, Range blocks);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_FP8_FP8_H_
