#include "octavo/kernels/bench/attention_truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace octavo::kernels::bench {
namespace {

double Real(const void* data, int64_t at, int32_t zero_point, float scale) {
  return (static_cast<const uint8_t*>(data)[at] - zero_point) * static_cast<double>(scale);
}

// The probabilities of one row.
std::vector<double> Probabilities(const SdpaInt8Args& a, int64_t head, int64_t row) {
  const int64_t kv_head = head / (a.shape.heads / a.shape.kv_heads);
  std::vector<double> p(static_cast<size_t>(a.shape.k_len));
  for (int64_t j = 0; j < a.shape.k_len; ++j) {
    double sum = 0;
    for (int64_t d = 0; d < a.shape.head_size; ++d) {
      sum += Real(a.q, head * a.q_strides.head + row * a.q_strides.row + d, a.q_zero_point, a.q_scale) *
             Real(a.k, kv_head * a.k_strides.head + j * a.k_strides.row + d, a.k_zero_point, a.k_scale);
    }
    sum *= a.scale;
    const SdpaMask& mask = a.mask;
    if (mask.data != nullptr) sum += mask.data[head * mask.head + row * mask.row + j * mask.col];
    p[static_cast<size_t>(j)] = sum;
  }
  const double most = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& v : p) total += v = std::exp(v - most);
  for (double& v : p) v /= total;
  return p;
}

double RowError(const SdpaInt8Args& a, const void* o, bool codes, int64_t head, int64_t row) {
  std::vector<double> p = Probabilities(a, head, row);
  if (codes) {
    for (double& v : p) {
      const double code = std::nearbyint(v / a.p_scale) + a.p_zero_point;
      v = (std::clamp(code, 0.0, 255.0) - a.p_zero_point) * a.p_scale;
    }
  }
  const int64_t kv_head = head / (a.shape.heads / a.shape.kv_heads);
  double worst = 0;
  for (int64_t c = 0; c < a.shape.v_head_size; ++c) {
    double sum = 0;
    for (int64_t j = 0; j < a.shape.k_len; ++j) {
      sum += p[static_cast<size_t>(j)] *
             Real(a.v, kv_head * a.v_strides.head + j * a.v_strides.row + c, a.v_zero_point, a.v_scale);
    }
    if (codes) sum = std::clamp(sum / a.o_scale + a.o_zero_point, 0.0, 255.0);
    const int64_t at = head * a.o_strides.head + row * a.o_strides.row + c;
    const double got = codes ? static_cast<const uint8_t*>(o)[at] : static_cast<const float*>(o)[at];
    const double error = std::abs(got - sum);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

double Error(const SdpaInt8Args& a, const void* o, bool codes) {
  double worst = 0;
  for (int64_t head = 0; head < a.shape.heads; ++head) {
    for (int64_t row : {int64_t{0}, a.shape.q_len / 2, a.shape.q_len - 1}) {
      worst = std::max(worst, RowError(a, o, codes, head, row));
    }
  }
  return worst;
}

}  // namespace

double AttentionErrorU8(const SdpaInt8Args& args, const void* o) { return Error(args, o, true); }
double AttentionErrorF32(const SdpaInt8Args& args, const void* o) { return Error(args, o, false); }

}  // namespace octavo::kernels::bench
