// Float32 matrix products, always on the calling thread: callers split the work. By oneDNN where it packs weights (AVX-512) and for two activations, over
// panels of ours where it does not (AVX2), and for two small activations.
//
// Bits: a fixed (CPU, m, n, k, strides) gives fixed bits. Another split of the rows may change the order in which
// oneDNN sums, so split by shape, never by the number of threads.
#ifndef OCTAVO_KERNELS_GEMM_GEMM_F32_H_
#define OCTAVO_KERNELS_GEMM_GEMM_F32_H_

#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

// oneDNN makes code for each number of rows, 140 KB, and keeps that of 1,024 products: numbers that are no multiples of 16 are cut, the rest
// being 17 to 31 rows, so that there are 38 numbers up to 128 (one call more, 2 % of 40 to 100 rows). Packed weights remember as many.
inline constexpr int64_t kRowUnitF32 = 16;
inline constexpr size_t kPackedF32Products = 48;

// Weights in panels, or in the layout that oneDNN prefers with the primitives used last. Immutable to callers; safe to share.
class PackedF32 {
 public:
  PackedF32();
  ~PackedF32();
  PackedF32(PackedF32&&) noexcept;
  PackedF32& operator=(PackedF32&&) noexcept;
  int64_t k() const;
  int64_t n() const;
  size_t bytes() const;
  size_t products() const;  // remembered now, at most kPackedF32Products; none where the weights lie in panels
  bool in_panels() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  friend std::expected<PackedF32, std::string> PackWeightsF32(const float* w, int64_t k, int64_t n, bool transposed,
                                                              int64_t m_hint, int64_t stride);
  std::unique_ptr<State> state_;
};

// w: [k][n], or [n][k] if `transposed`; `stride`: elements from row to row, 0: they follow each other. `m_hint`: the usual number of
// rows of one call; it only steers the layout.
std::expected<PackedF32, std::string> PackWeightsF32(const float* w, int64_t k, int64_t n, bool transposed,
                                                     int64_t m_hint, int64_t stride = 0);

struct GemmF32Args {
  const float* x = nullptr;  // [m][k]
  int64_t x_stride = 0;
  const PackedF32* w = nullptr;
  const float* bias = nullptr;  // n values or null
  float* y = nullptr;           // [m][n]
  int64_t y_stride = 0;
};
// Rows [rows.begin, rows.end) of y = x * w + bias. Empty on success, otherwise oneDNN's reason in a sentence.
std::string GemmF32(const GemmF32Args& args, Range rows);

// c[b] = a[b] * b[b] for operands that are both activations, e.g. attention. Any strides in elements: a transposed
// operand has column stride != 1 and row stride 1; a broadcast batch has batch stride 0.
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
  // Sums in the order of k on every CPU with AVX2, where columns of a are contiguous.
  bool in_order = false;
};
// Batches [batches.begin, batches.end). Several batch dimensions: call once per outer index, with shifted pointers.
std::string MatMulF32(const MatMulF32Args& args, Range batches);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_GEMM_F32_H_
