// The residual of an epilogue, int8 or fp8: values += residual. Per target.
#if defined(OCTAVO_KERNELS_GEMM_RESIDUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_RESIDUAL_INL_H_
#undef OCTAVO_KERNELS_GEMM_RESIDUAL_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_RESIDUAL_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/gemm/gemm.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// values [rows][64], aligned: those of y from (row, column) on, of which `columns` exist.
HWY_INLINE void AddResidual(const GemmOutput& y, int64_t row, int64_t column, int64_t rows, int columns,
                            float* values) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const float* from = y.residual + row * y.residual_stride + column;
  for (int64_t r = 0; r < rows; ++r, from += y.residual_stride, values += 64) {
    int c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      hn::Store(hn::Add(hn::Load(d, values + c), hn::LoadU(d, from + c)), d, values + c);
    }
    if (c == columns) continue;
    const auto rest = hn::LoadN(d, from + c, static_cast<size_t>(columns - c));
    hn::Store(hn::Add(hn::Load(d, values + c), rest), d, values + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
