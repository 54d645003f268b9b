// Inside of GemmF32: float products of a few rows, bound by the reading of their weights.
#ifndef OCTAVO_KERNELS_GEMM_FEW_ROWS_F32_H_
#define OCTAVO_KERNELS_GEMM_FEW_ROWS_F32_H_

#include <cstdint>

#include "octavo/kernels/forms.h"

namespace octavo::kernels {

inline constexpr int64_t kFewRowsF32 = 4;
// Wider rows of sums leave L1: 2304 columns of 1 row read 13 GB/s, oneDNN 17 (few_rows_f32_vec.cc has the machine).
inline constexpr int64_t kFewRowsColumns = 1024;

// y = x * w + bias, each output one chain of FMA in the order of k.
struct FewRowsF32Args {
  int64_t m = 0;             // 1 to kFewRowsF32
  int64_t k = 0, n = 0;      // n: meant for kFewRowsColumns at most
  const float* x = nullptr;  // [m][k]
  int64_t x_stride = 0;
  const float* w = nullptr;  // [k][n], rows one after the other
  const float* bias = nullptr;
  float* y = nullptr;  // [m][n]
  int64_t y_stride = 0;
};
extern const PerArch<void(const FewRowsF32Args&)> kFewRowsOf;  // none for Arch::kScalar

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_FEW_ROWS_F32_H_
