#include "octavo/kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/math.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::kernels {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

struct Case {
  bool rms, skip, beta, sum, y, q, second;  // second: s8 or E5M2, else u8 or E4M3FN
  bool fp8 = false;
};

class NormTest : public testing::TestWithParam<Arch> {
 protected:
  void Check(const Case& c, int64_t n, uint32_t seed);
};

void NormTest::Check(const Case& c, int64_t n, uint32_t seed) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0.3f, 2.0f);
  const auto random = [&](int64_t count) {
    std::vector<float> v(count);
    for (float& f : v) f = normal(gen);
    return v;
  };
  constexpr int64_t kRows = 4, kPad = 3;
  const int64_t stride = n + kPad;
  auto x = random(kRows * stride);
  const auto skip = random(kRows * stride), gamma = random(n), beta = random(n), q_gamma = random(n);
  if (seed % 5 == 0) x[2 * stride + gen() % n] = kNan;
  if (seed % 5 == 1) x[2 * stride + gen() % n] = std::numeric_limits<float>::infinity();
  std::vector<float> sum(kRows * stride, -7), y(kRows * stride, -7), scratch(3 * n), want(n), row(n);
  std::vector<uint8_t> q(kRows * stride, 77);
  NormArgs args;
  args.n = n;
  args.x = x.data();
  args.x_stride = stride;
  args.gamma = gamma.data();
  args.rms = c.rms;
  args.epsilon = seed % 2 == 0 ? 1e-5f : 1e-12f;
  if (c.skip) args.skip = skip.data(), args.skip_stride = seed % 3 == 0 ? 0 : stride;
  if (c.beta) args.beta = beta.data();
  const bool own = c.q && seed % 4 == 0;  // q with gamma and beta of its own, crosswise
  if (own) args.q_gamma = q_gamma.data(), args.q_beta = c.beta ? nullptr : beta.data();
  if (c.sum) args.sum = sum.data(), args.sum_stride = stride;
  if (c.y) args.y = y.data(), args.y_stride = stride;
  if (c.q) args.q = q.data(), args.q_stride = stride;
  const int64_t again[kPad] = {n - 1, 0, n / 2};
  if (c.q) args.q_again = again, args.q_more = seed % 4;
  args.q_type = c.fp8 ? (c.second ? quant::DType::kE5M2 : quant::DType::kE4M3FN)
                      : (c.second ? quant::DType::kS8 : quant::DType::kU8);
  args.q_zero_point = static_cast<int32_t>(gen() % 256) - (c.second ? 128 : 0);  // fp8 does not look at it
  args.q_scale = seed % 17 == 0 ? 1e-38f : 0.003f + 0.03f * static_cast<float>(gen() % 1000) / 1000;
  if (c.fp8 && seed % 7 < 3) args.q_scale *= seed % 7 == 0 ? 4096.0f : 64.0f;  // subnormal codes; else some saturate
  NormRows(GetParam(), args, 1, kRows, scratch.data());
  const auto code = [&](float v) -> uint8_t {
    if (c.fp8) return quant::QuantizeFp8One(v, args.q_scale, args.q_type);
    const auto [lo, hi] = quant::RangeOf(args.q_type);
    return static_cast<uint8_t>(
        quant::QuantizeOne(v, args.q_scale, args.q_zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi)));
  };
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < n; ++i) row[i] = x[r * stride + i] + (c.skip ? skip[r * args.skip_stride + i] : 0.0f);
    if (c.rms) {
      quant::RmsNormRow(row.data(), n, gamma.data(), args.epsilon, want.data());
    } else {
      quant::LayerNormRow(row.data(), n, gamma.data(), args.beta, args.epsilon, want.data());
    }
    std::vector<float> for_q = want;
    if (own && c.rms) quant::RmsNormRow(row.data(), n, args.q_gamma, args.epsilon, for_q.data());
    if (own && !c.rms) quant::LayerNormRow(row.data(), n, args.q_gamma, args.q_beta, args.epsilon, for_q.data());
    for (int64_t i = 0; i < stride; ++i) {
      const bool inside = r >= 1 && i < n;
      const float want_sum = inside && c.sum ? row[i] : -7.0f;
      const float want_y = inside && c.y ? want[i] : -7.0f;
      const bool coded = r >= 1 && i < n + args.q_more;
      const uint8_t want_q = !coded || !c.q ? 77 : code(for_q[i < n ? i : again[i - n]]);
      ASSERT_TRUE(Same(sum[r * stride + i], want_sum)) << r << " " << i;
      ASSERT_TRUE(Same(y[r * stride + i], want_y)) << r << " " << i << ": " << y[r * stride + i] << " " << want_y;
      ASSERT_EQ(int{q[r * stride + i]}, int{want_q}) << r << " " << i;
    }
  }
}

TEST_P(NormTest, EqualsTheTruthForEveryLength) {
  for (int64_t n = 1; n <= 150; n += n < 70 ? 1 : 13) {
    for (int bits = 0; bits < 128; bits += 3) {  // 3 is coprime to 128: every flag meets every other
      Case c = {(bits & 1) != 0,  (bits & 2) != 0,  (bits & 4) != 0, (bits & 8) != 0,
                (bits & 16) != 0, (bits & 32) != 0, (bits & 64) != 0};
      const auto seed = static_cast<uint32_t>(n * 1000 + bits);
      SCOPED_TRACE("seed " + std::to_string(seed) + ", n " + std::to_string(n) + ", case " + std::to_string(bits));
      Check(c, n, seed);
      c.fp8 = true;
      if (c.q) Check(c, n, seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NormTest, InPlace) {
  constexpr int64_t kN = 37;
  std::mt19937 gen(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(kN), skip(kN), gamma(kN), beta(kN), row(kN), want(kN), scratch(3 * kN);
  for (auto* v : {&x, &skip, &gamma, &beta}) {
    for (float& f : *v) f = normal(gen);
  }
  for (int64_t i = 0; i < kN; ++i) row[i] = x[i] + skip[i];
  quant::LayerNormRow(row.data(), kN, gamma.data(), beta.data(), 1e-5f, want.data());
  NormArgs args;
  args.n = kN;
  args.x = x.data();
  args.skip = skip.data();
  args.gamma = gamma.data();
  args.beta = beta.data();
  args.y = x.data();
  NormRows(GetParam(), args, 0, 1, scratch.data());
  for (int64_t i = 0; i < kN; ++i) ASSERT_TRUE(Same(x[i], want[i]));
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, NormTest, testing::ValuesIn(SupportedArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
