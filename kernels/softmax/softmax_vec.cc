#include "octavo/kernels/softmax/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/softmax/softmax_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/softmax/softmax-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

void SoftmaxRowsVec(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) SoftmaxRow(x + r * x_stride, static_cast<size_t>(n), y + r * y_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::kernels {
namespace {

void SoftmaxReference(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) quant::SoftmaxRow(x + r * x_stride, n, y + r * y_stride);
}

constexpr PerArch<decltype(SoftmaxReference)> kSoftmax = {&SoftmaxReference, &N_AVX2::SoftmaxRowsVec,
                                                          &N_AVX3::SoftmaxRowsVec, &N_AVX3_DL::SoftmaxRowsVec};

}  // namespace

void SoftmaxRows(Arch arch, const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t n) {
  kSoftmax[arch](x, x_stride, y, y_stride, rows, n);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
