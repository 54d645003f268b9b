#include "octavo/kernels/norm/norm_ref.h"

#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/math.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::kernels::internal {
namespace {

void NormalizeRow(const NormArgs& args, const float* x, const float* gamma, const float* beta, float* y) {
  if (args.rms) {
    quant::RmsNormRow(x, args.n, gamma, args.epsilon, y);
  } else {
    quant::LayerNormRow(x, args.n, gamma, beta, args.epsilon, y);
  }
}

void QuantizeRow(const NormArgs& args, const float* y, int64_t row) {
  auto* q = static_cast<uint8_t*>(args.q) + row * args.q_stride;  // s8 has the same low byte
  if (quant::IsFp8(args.q_type)) {
    for (int64_t i = 0; i < args.n; ++i) q[i] = quant::QuantizeFp8One(y[i], args.q_scale, args.q_type);
  } else {
    const auto [lo, hi] = quant::RangeOf(args.q_type);
    for (int64_t i = 0; i < args.n; ++i) {
      q[i] = static_cast<uint8_t>(quant::QuantizeOne(y[i], args.q_scale, args.q_zero_point, static_cast<int32_t>(lo),
                                                     static_cast<int32_t>(hi)));
    }
  }
  for (int64_t i = 0; i < args.q_more; ++i) q[args.n + i] = q[args.q_again[i]];
}

}  // namespace

void NormReference(const NormArgs& args, int64_t begin, int64_t end, float* scratch) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = args.x + r * args.x_stride;
    if (args.skip != nullptr) {
      const float* skip = args.skip + r * args.skip_stride;
      float* sum = args.sum != nullptr ? args.sum + r * args.sum_stride : scratch;
      for (int64_t i = 0; i < args.n; ++i) sum[i] = x[i] + skip[i];
      x = sum;
    } else if (args.sum != nullptr) {
      float* sum = args.sum + r * args.sum_stride;
      for (int64_t i = 0; i < args.n; ++i) sum[i] = x[i];
    }
    if (args.y == nullptr && args.q == nullptr) continue;
    float* own = args.q_gamma != nullptr ? scratch + 2 * args.n : nullptr;  // before y, which may lie where x does
    if (own != nullptr) NormalizeRow(args, x, args.q_gamma, args.q_beta, own);
    float* y = args.y != nullptr ? args.y + r * args.y_stride : scratch + args.n;
    NormalizeRow(args, x, args.gamma, args.beta, y);
    if (args.q != nullptr) QuantizeRow(args, own != nullptr ? own : y, r);
  }
}

}  // namespace octavo::kernels::internal
