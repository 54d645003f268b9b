// The truth of GemmBlocked: one output at a time.
#include <algorithm>
#include <cmath>

#include "octavo/kernels/blocked/blocked.h"

namespace octavo::kernels {

void GemmBlockedReference(const BlockedArgs& args, Range rows, Range blocks) {
  const PackedBlocked& w = *args.w;
  const int64_t end = std::min(w.n(), blocks.end * kColumnBlock);
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    for (int64_t n = blocks.begin * kColumnBlock; n < end; ++n) {
      const float* x = args.x + m * args.x_stride;
      float y = 0.0f;
      for (int64_t b = 0; b < w.blocks(); ++b) {
        float sum = 0.0f;
        for (int64_t i = 0; i < std::min(w.block(), w.k() - b * w.block()); ++i) {
          sum = std::fma(static_cast<float>(w.Code(b, i, n) - w.Zero(b, n)), x[b * w.block() + i], sum);
        }
        y = std::fma(sum, w.Scale(b, n), y);
      }
      args.y[m * args.y_stride + n] = args.bias == nullptr ? y : y + args.bias[n];
    }
  }
}

}  // namespace octavo::kernels
