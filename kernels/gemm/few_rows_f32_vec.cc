// 1 to 4 float rows times a matrix as it lies in memory: every row of the weights is read once, in order, and added to sums that
// stay in L1. oneDNN's product (gemm:jit on AVX2) copies the weights into panels in every call. Zen 4, one thread, weights of
// 768 x 512 from memory, GB/s: 1 row 19 (oneDNN 11), 2 rows 16 (8), 4 rows 14 (8); eight rows of weights at once give 15 for 1 row.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/gemm/few_rows_f32_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/gemm/few_rows_f32.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// y[m][0..n) += x[m] * w[0..n)
template <int kRows>
HWY_INLINE void AddRow(const float (&x)[kRows], const float* HWY_RESTRICT w, float* HWY_RESTRICT y, int64_t y_stride,
                       int64_t n) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const auto v = hn::LoadU(d, w + j);
    HWY_UNROLL(4)
    for (int m = 0; m < kRows; ++m) {
      float* to = y + m * y_stride + j;
      hn::StoreU(hn::MulAdd(hn::Set(d, x[m]), v, hn::LoadU(d, to)), d, to);
    }
  }
  const auto rest = static_cast<size_t>(n - j);
  if (rest == 0) return;
  const auto v = hn::LoadN(d, w + j, rest);
  for (int m = 0; m < kRows; ++m) {
    float* to = y + m * y_stride + j;
    hn::StoreN(hn::MulAdd(hn::Set(d, x[m]), v, hn::LoadN(d, to, rest)), d, to, rest);
  }
}

template <int kRows>
void FewRowsOf(const FewRowsF32Args& args) {
  for (int m = 0; m < kRows; ++m) {
    for (int64_t j = 0; j < args.n; ++j) args.y[m * args.y_stride + j] = args.bias == nullptr ? 0.0f : args.bias[j];
  }
  for (int64_t i = 0; i < args.k; ++i) {
    float x[kRows];
    for (int m = 0; m < kRows; ++m) x[m] = args.x[m * args.x_stride + i];
    AddRow<kRows>(x, args.w + i * args.n, args.y, args.y_stride, args.n);
  }
}

void FewRows(const FewRowsF32Args& args) {
  constexpr decltype(&FewRowsOf<1>) kOf[kFewRowsF32] = {FewRowsOf<1>, FewRowsOf<2>, FewRowsOf<3>, FewRowsOf<4>};
  kOf[args.m - 1](args);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
namespace octavo::kernels {

const PerArch<void(const FewRowsF32Args&)> kFewRowsOf = {nullptr, &N_AVX2::FewRows, &N_AVX3::FewRows,
                                                         &N_AVX3_DL::FewRows};

}  // namespace octavo::kernels
#endif  // HWY_ONCE
