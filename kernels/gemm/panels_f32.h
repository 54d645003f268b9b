// Inside of GemmF32 and MatMulF32: float products over a right operand in panels of 16 columns. Every sum is one chain in the order of k, of FMA where the
// CPU has it (AVX2), so that the bits of a row depend neither on how many rows there are nor on the CPU.
#ifndef OCTAVO_KERNELS_GEMM_PANELS_F32_H_
#define OCTAVO_KERNELS_GEMM_PANELS_F32_H_

#include <cstdint>

#include "octavo/kernels/forms.h"

namespace octavo::kernels {

inline constexpr int64_t kPanelColumns = 16;
inline constexpr int64_t kPanelTileRows =
    6;  // with a panel of two vectors: 12 sums of AVX2's 16 registers; with four of one: 24 of AVX-512's 32
inline constexpr int64_t kPanelFewRows =
    3;  // up to so many take several panels at once: chains of few sums wait for each other

// Floats of a right operand's panels that are copied at once, a quarter of L2. None is made for up to so many rows (two tiles)
// or columns (one tile of AVX-512).
inline constexpr int64_t kPanelsCopy = 32 << 10;
inline constexpr int64_t kPanelUncopiedRows = 2 * kPanelTileRows, kPanelUncopiedColumns = 4 * kPanelColumns;

// Floats of the panels of a matrix of k rows and n columns.
constexpr int64_t PanelsF32Size(int64_t k, int64_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns * k;
}
// Element (l, j) of w lies at w[l * row + j * column]; columns beyond n become zeros.
void PackPanelsF32(const float* w, int64_t k, int64_t n, int64_t row, int64_t column, float* panels);

// y = x * w + bias
struct PanelsF32Args {
  int64_t m = 0, k = 0, n = 0;
  const float* x = nullptr;  // [m][k]
  int64_t x_stride = 0;
  const float* panels = nullptr;  // aligned for vectors; or
  const float* rows = nullptr;    // w as it lies, [k][n], n a multiple of 16
  int64_t rows_stride = 0;
  const float* bias = nullptr;  // n values or null
  float* y = nullptr;           // [m][n]
  int64_t y_stride = 0;
};
extern const PerArch<void(const PanelsF32Args&)> kPanelsF32Of;

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_PANELS_F32_H_
