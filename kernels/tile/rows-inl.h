// A number of rows as a constant of the compiler, for tiles that keep the sums of each row in registers by name. Per target.
#if defined(OCTAVO_KERNELS_TILE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_TILE_ROWS_INL_H_
#undef OCTAVO_KERNELS_TILE_ROWS_INL_H_
#else
#define OCTAVO_KERNELS_TILE_ROWS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// f.operator()<rows>(), rows from 1 to kMost.
template <int kMost, class F>
HWY_INLINE void WithRows(int64_t rows, F f) {
  if constexpr (kMost == 1) {
    f.template operator()<1>();
  } else {
    if (rows == kMost) return f.template operator()<kMost>();
    WithRows<kMost - 1>(rows, f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // OCTAVO_KERNELS_TILE_ROWS_INL_H_
