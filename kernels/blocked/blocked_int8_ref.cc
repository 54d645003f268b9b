// The truth of GemmBlockedInt8: one output at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/kernels/blocked/blocked_int8.h"

namespace octavo::kernels {

namespace internal {

void QuantizeBlocksReference(const PackedBlocked& w, const float* x, int64_t x_stride, int64_t rows, uint8_t* out) {
  for (int64_t m = 0; m < rows; ++m, x += x_stride, out += BlockedRowBytes(w)) {
    auto* codes = reinterpret_cast<int8_t*>(out);
    auto* scales = reinterpret_cast<float*>(out + BlockedCodeBytes(w));
    float* sums = scales + w.blocks();
    for (int64_t b = 0; b < w.blocks(); ++b) {
      const int64_t begin = b * w.block(), end = std::min(w.k(), begin + w.block());
      float top = 0.0f;
      bool finite = true;
      for (int64_t k = begin; k < end; ++k) {
        top = std::max(top, std::fabs(x[k]));
        finite = finite && std::isfinite(x[k]);
      }
      scales[b] = finite ? std::max(top / 127.0f, 0x1p-100f) : std::numeric_limits<float>::quiet_NaN();
      int sum = 0;
      for (int64_t k = begin; k < begin + w.block(); ++k) {
        const float steps = k < end && finite ? std::nearbyint(x[k] / scales[b]) : 0.0f;
        codes[k] = static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f));
        sum += codes[k];
      }
      sums[b] = static_cast<float>(sum);
    }
  }
}

void GemmBlockedInt8Reference(const BlockedInt8Args& args, Range rows, Range blocks, void*) {
  const PackedBlocked& w = *args.w;
  const int64_t end = std::min(w.n(), blocks.end * kColumnBlock);
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    const uint8_t* row = args.x + m * BlockedRowBytes(w);
    const auto* codes = reinterpret_cast<const int8_t*>(row);
    for (int64_t n = blocks.begin * kColumnBlock; n < end; ++n) {
      float y = 0.0f;
      for (int64_t b = 0; b < w.blocks(); ++b) {
        int32_t sum = 0;
        for (int64_t i = 0; i < w.block(); ++i) sum += codes[b * w.block() + i] * (w.Code(b, i, n) - w.Zero(b, n));
        y = std::fma(static_cast<float>(sum), w.Scale(b, n) * BlockedRowScales(w, row)[b], y);
      }
      args.y[m * args.y_stride + n] = args.bias == nullptr ? y : y + args.bias[n];
    }
  }
}

}  // namespace internal

}  // namespace octavo::kernels
