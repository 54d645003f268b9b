// Inside of GemmF32 and MatMulF32: float products whose every sum is one chain of FMA in the order of k, however many rows there are.
#ifndef OCTAVO_KERNELS_GEMM_IN_ORDER_F32_H_
#define OCTAVO_KERNELS_GEMM_IN_ORDER_F32_H_

#include <cstdint>

#include "octavo/kernels/forms.h"

namespace octavo::kernels {

inline constexpr int64_t kInOrderRows = 6;           // of a tile
inline constexpr int64_t kInOrderPanelColumns = 32;  // at most, of the copy: two vectors

// y = x * w + bias, the bits of FewRowsF32Args for any number of rows.
struct InOrderF32Args {
  int64_t m = 0, k = 0, n = 0;
  const float* x = nullptr;  // [m][k]
  int64_t x_stride = 0;
  const float* w = nullptr;  // [k][n]
  int64_t w_stride = 0;
  const float* bias = nullptr;  // n values or null
  float* y = nullptr;           // [m][n]
  int64_t y_stride = 0;
  float* panel = nullptr;  // room for k * kInOrderPanelColumns
};
extern const PerArch<void(const InOrderF32Args&)> kInOrderOf;  // none for Arch::kScalar

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_IN_ORDER_F32_H_
