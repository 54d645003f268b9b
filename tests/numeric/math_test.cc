#include "octavo/quant/numeric/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

namespace octavo::quant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// Distance in units of the last place of the float nearest to `truth`.
double Ulps(float y, double truth) {
  const auto nearest = static_cast<float>(truth);
  const double ulp = std::nextafter(std::fabs(nearest), kInf) - std::fabs(nearest);
  return std::fabs(static_cast<double>(y) - truth) / ulp;
}

struct Worst {
  double ulps = 0;
  float at = 0;
};

// Every `stride`-th float of [lo, hi] of the same sign.
template <typename F, typename Truth>
Worst Sweep(float lo, float hi, uint32_t stride, F f, Truth truth) {
  Worst worst;
  uint32_t a = std::bit_cast<uint32_t>(lo);
  uint32_t b = std::bit_cast<uint32_t>(hi);
  if (a > b) std::swap(a, b);
  size_t zeros = 0;
  for (uint64_t u = a; u <= b; u += stride) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
    const double want = truth(static_cast<double>(x));
    const float got = f(x);
    zeros += got == 0.0f ? 1 : 0;
    const double ulps = Ulps(got, want);
    if (!(ulps <= worst.ulps)) worst = {ulps, x};
  }
  EXPECT_LE(zeros, 1u);
  return worst;
}

constexpr uint32_t kStride = 397;  // prime: about 3 to 5 million arguments a function

TEST(Exp, IsWithinTwoUlps) {
  double worst = 0;
  for (const auto& [lo, hi] : {std::pair{1e-30f, 88.7228f}, {-1e-30f, -87.33653f}}) {
    const Worst w = Sweep(lo, hi, kStride, Exp, [](double x) { return std::exp(x); });
    std::printf("Exp on [%g, %g]: %.3f ulp at %g\n", lo, hi, w.ulps, w.at);
    worst = std::max(worst, w.ulps);
  }
  EXPECT_LE(worst, 2.0);
}

TEST(Erf, IsWithinSixUlps) {
  for (const float sign : {1.0f, -1.0f}) {
    const Worst w = Sweep(sign * 1e-36f, sign * 20.0f, kStride, Erf, [](double x) { return std::erf(x); });
    std::printf("Erf: %.3f ulp at %g\n", w.ulps, w.at);
    EXPECT_LE(w.ulps, 6.0);
  }
}

TEST(Tanh, IsWithinSixUlps) {
  for (const float sign : {1.0f, -1.0f}) {
    const Worst w = Sweep(sign * 1e-36f, sign * 40.0f, kStride, Tanh, [](double x) { return std::tanh(x); });
    std::printf("Tanh: %.3f ulp at %g\n", w.ulps, w.at);
    EXPECT_LE(w.ulps, 6.0);
  }
}

TEST(Sigmoid, IsWithinFourUlps) {
  for (const float hi : {80.0f, -80.0f}) {
    const Worst w =
        Sweep(std::copysign(1e-30f, hi), hi, kStride, Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
    std::printf("Sigmoid: %.3f ulp at %g\n", w.ulps, w.at);
    EXPECT_LE(w.ulps, 4.0);
  }
}

TEST(Exp, Corners) {
  EXPECT_TRUE(SameBits(Exp(0.0f), 1.0f));
  EXPECT_TRUE(SameBits(Exp(-0.0f), 1.0f));
  EXPECT_TRUE(SameBits(Exp(-kInf), 0.0f));
  EXPECT_TRUE(SameBits(Exp(-3.4e38f), 0.0f));
  EXPECT_TRUE(SameBits(Exp(-88.0f), 0.0f));
  EXPECT_TRUE(SameBits(Exp(kInf), kInf));
  EXPECT_TRUE(SameBits(Exp(89.0f), kInf));
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  EXPECT_TRUE(SameBits(Exp(1e-42f), 1.0f));
  EXPECT_GE(Exp(-0x1.5d589ep+6f), 0x1p-126f);
  EXPECT_TRUE(SameBits(Exp(std::nextafter(-0x1.5d589ep+6f, -kInf)), 0.0f));
  EXPECT_LT(Exp(88.7228f), kInf);
  EXPECT_GT(Exp(88.7228f), 3.4e38f);
}

TEST(Functions, OddAndSaturated) {
  for (auto* f : {Erf, Tanh}) {
    EXPECT_TRUE(std::isnan(f(kNan)));
    EXPECT_TRUE(SameBits(f(0.0f), 0.0f));
    EXPECT_TRUE(SameBits(f(-0.0f), -0.0f));
    for (const float x : {kInf, 3.4e38f, 1000.0f, 9.1f}) {
      EXPECT_TRUE(SameBits(f(x), 1.0f)) << x;
      EXPECT_TRUE(SameBits(f(-x), -1.0f)) << x;
    }
    EXPECT_GT(f(1e-40f), 0.0f);  // denormals are not flushed
    for (float x = 1e-6f; x < 10; x *= 1.07f) {
      EXPECT_TRUE(SameBits(f(-x), -f(x)));
      EXPECT_LE(f(x), 1.0f);
    }
  }
  EXPECT_TRUE(SameBits(Erf(4.04f), 1.0f));
  EXPECT_TRUE(SameBits(Sigmoid(-kInf), 0.0f));
  EXPECT_TRUE(SameBits(Sigmoid(kInf), 1.0f));
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

// Against the formulas in double; the cancellation in 1 + erf makes the error absolute, not relative.
TEST(Activations, FollowTheirFormulas) {
  for (float x = -12; x < 12; x += 0.00173f) {
    const double d = x;
    const double tolerance = 4e-7 * std::max(1.0, std::fabs(d));
    ASSERT_NEAR(Gelu(x), 0.5 * d * (1 + std::erf(d / std::sqrt(2.0))), tolerance) << x;
    const double inner = std::sqrt(2 / M_PI) * (d + 0.044715 * d * d * d);
    ASSERT_NEAR(GeluTanh(x), 0.5 * d * (1 + std::tanh(inner)), tolerance) << x;
    ASSERT_NEAR(Silu(x), d / (1 + std::exp(-d)), tolerance) << x;
    // The documented order of operations, bit for bit.
    ASSERT_TRUE(SameBits(Gelu(x), (x * (Erf(x / 1.41421354f) + 1.0f)) * 0.5f)) << x;
    ASSERT_TRUE(SameBits(Silu(x), x * Sigmoid(x))) << x;
  }
  EXPECT_TRUE(SameBits(Gelu(20.0f), 20.0f));
  EXPECT_TRUE(SameBits(Gelu(-20.0f), -0.0f));
}

std::vector<float> Random(size_t n, uint32_t seed, float scale = 3.0f) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0.1f, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(gen);
  return x;
}

// The documented order, written again without any sharing of code.
float LanesByHand(const std::vector<float>& a, const std::vector<float>* b) {
  float lane[16] = {};
  for (size_t i = 0; i < a.size(); ++i) {
    lane[i % 16] = b == nullptr ? lane[i % 16] + a[i] : std::fma(a[i], (*b)[i], lane[i % 16]);
  }
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = lane[i] + lane[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

TEST(Sums, HaveTheDocumentedOrderAndAreNearDouble) {
  for (size_t n = 0; n <= 70; ++n) {
    const auto a = Random(n, 7 + n);
    const auto b = Random(n, 1007 + n);
    const auto count = static_cast<int64_t>(n);
    double sum = 0, squares = 0, dot = 0, size = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += a[i];
      squares += double{a[i]} * a[i];
      dot += double{a[i]} * b[i];
      size += std::fabs(double{a[i]} * b[i]) + std::fabs(a[i]) + double{a[i]} * a[i];
    }
    EXPECT_TRUE(SameBits(Sum16(a.data(), count), LanesByHand(a, nullptr))) << n;
    EXPECT_TRUE(SameBits(SumSquares16(a.data(), count), LanesByHand(a, &a))) << n;
    EXPECT_TRUE(SameBits(Dot16(a.data(), b.data(), count), LanesByHand(a, &b))) << n;
    EXPECT_NEAR(Sum16(a.data(), count), sum, 1e-6 * size + 1e-30);
    EXPECT_NEAR(SumSquares16(a.data(), count), squares, 1e-6 * size + 1e-30);
    EXPECT_NEAR(Dot16(a.data(), b.data(), count), dot, 1e-6 * size + 1e-30);
  }
}

TEST(RowMax, FindsTheMaximumAndNaN) {
  EXPECT_EQ(RowMax(nullptr, 0), -kInf);
  for (size_t n = 1; n <= 70; ++n) {
    auto x = Random(n, 100 + n);
    EXPECT_EQ(RowMax(x.data(), static_cast<int64_t>(n)), *std::max_element(x.begin(), x.end()));
    x[n / 2] = kNan;
    EXPECT_TRUE(std::isnan(RowMax(x.data(), static_cast<int64_t>(n))));
  }
}

TEST(SoftmaxRow, IsNearDoubleAndSumsToOne) {
  for (size_t n = 1; n <= 70; ++n) {
    const auto x = Random(n, 200 + n, 5.0f);
    std::vector<float> y(n, -1.0f);
    SoftmaxRow(x.data(), static_cast<int64_t>(n), y.data());
    const double m = *std::max_element(x.begin(), x.end());
    double sum = 0, total = 0;
    for (const float v : x) sum += std::exp(v - m);
    for (size_t i = 0; i < n; ++i) {
      const double want = std::exp(x[i] - m) / sum;
      EXPECT_NEAR(y[i], want, 1e-6 * want * (1 + std::fabs(x[i] - m)));
      total += y[i];
    }
    EXPECT_NEAR(total, 1.0, 1e-6);
  }
}

TEST(SoftmaxRow, MaskedRows) {
  std::vector<float> x(20, -kInf), y(20);
  SoftmaxRow(x.data(), 20, y.data());
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
  std::fill(x.begin(), x.end(), -3.4e38f);  // what exporters add: uniform
  SoftmaxRow(x.data(), 20, y.data());
  for (const float v : y) EXPECT_TRUE(SameBits(v, 1.0f / 20.0f));
  x[3] = 1.0f;
  SoftmaxRow(x.data(), 20, y.data());
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(SameBits(y[i], i == 3 ? 1.0f : 0.0f));
  x[7] = kNan;
  SoftmaxRow(x.data(), 20, y.data());
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
}

TEST(Norms, AreNearDouble) {
  for (size_t n = 1; n <= 70; ++n) {
    const auto x = Random(n, 300 + n), gamma = Random(n, 400 + n, 1.0f), beta = Random(n, 500 + n, 1.0f);
    std::vector<float> y(n), z(n), w(n);
    const auto count = static_cast<int64_t>(n);
    LayerNormRow(x.data(), count, gamma.data(), beta.data(), 1e-5f, y.data());
    LayerNormRow(x.data(), count, gamma.data(), nullptr, 1e-5f, z.data());
    RmsNormRow(x.data(), count, gamma.data(), 1e-5f, w.data());
    double mean = 0, var = 0, squares = 0;
    for (const float v : x) mean += v / double(n);
    for (const float v : x) var += (v - mean) * (v - mean) / double(n), squares += double{v} * v / double(n);
    for (size_t i = 0; i < n; ++i) {
      const double norm = (x[i] - mean) / std::sqrt(var + 1e-5) * gamma[i];
      EXPECT_NEAR(y[i], norm + beta[i], 2e-5 + 2e-6 * std::fabs(norm));
      EXPECT_NEAR(z[i], norm, 2e-5 + 2e-6 * std::fabs(norm));
      EXPECT_NEAR(w[i], x[i] / std::sqrt(squares + 1e-5) * gamma[i], 2e-6 * (1 + std::fabs(w[i])));
    }
  }
}

}  // namespace
}  // namespace octavo::quant
