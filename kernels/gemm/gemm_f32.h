// Float32 matrix products, always on the calling thread: callers split the work.
//
// Bits: every sum is one chain in the order of k, of FMA on CPUs with AVX2, so they depend neither on the split of the work nor on such a CPU.
#ifndef OCTAVO_KERNELS_GEMM_GEMM_F32_H_
#define OCTAVO_KERNELS_GEMM_GEMM_F32_H_

#include <cstdint>
#include <expected>
#include <string>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/simd/weights.h"

namespace octavo::kernels {

// Weights in panels of 16 columns (panels_f32.h).
class PackedF32 {
 public:
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  size_t bytes() const { return panels_.size() * sizeof(float); }
  const float* panels() const { return panels_.data(); }

 private:
  friend std::expected<PackedF32, std::string> PackWeightsF32(const float* w, int64_t k, int64_t n, bool transposed,
                                                              int64_t stride);
  int64_t k_ = 0, n_ = 0;
  WeightArray<float> panels_;
};

// w: [k][n], or [n][k] if `transposed`; `stride`: elements from row to row, 0: they follow each other. An error where there are none.
std::expected<PackedF32, std::string> PackWeightsF32(const float* w, int64_t k, int64_t n, bool transposed,
                                                     int64_t stride = 0);

struct GemmF32Args {
  const float* x = nullptr;  // [m][k]
  int64_t x_stride = 0;
  const PackedF32* w = nullptr;
  const float* bias = nullptr;  // n values or null
  float* y = nullptr;           // [m][n]
  int64_t y_stride = 0;
};
// Rows [rows.begin, rows.end) of y = x * w + bias.
void GemmF32(const GemmF32Args& args, Range rows);

// c[b] = a[b] * b[b] for operands that are both activations, e.g. attention. Any strides in elements: a transposed
// operand has column stride != 1 and row stride 1; a broadcast batch has batch stride 0. Of depth 0: zeros.
struct MatMulF32Args {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  const float* a = nullptr;  // [m][k]
  int64_t a_row = 0, a_column = 1, a_batch = 0;
  const float* b = nullptr;  // [k][n]
  int64_t b_row = 0, b_column = 1, b_batch = 0;
  float* c = nullptr;  // [m][n], columns contiguous
  int64_t c_row = 0, c_batch = 0;
};
// Batches [batches.begin, batches.end). Several batch dimensions: call once per outer index, with shifted pointers.
void MatMulF32(const MatMulF32Args& args, Range batches);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_GEMM_F32_H_
