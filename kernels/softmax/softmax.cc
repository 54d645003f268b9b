#include "octavo/kernels/softmax/softmax.h"

#include "octavo/quant/numeric/math.h"

namespace octavo::kernels {

void SoftmaxRows(Arch, const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) quant::SoftmaxRow(x + r * x_stride, n, y + r * y_stride);
}

}  // namespace octavo::kernels
