#include "octavo/kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "octavo/quant/numeric/math.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

constexpr UnaryParams kParams = {.a = -0.5f, .b = 1.5f};

// The functions as the contract has them, not through the scalar kernel.
float Truth(UnaryOp op, float x) {
  const auto within01 = [](float v) { return std::isnan(v) ? 1.0f : std::clamp(v, 0.0f, 1.0f) + 0.0f; };
  switch (op) {
    case UnaryOp::kAbs:
      return std::fabs(x);
    case UnaryOp::kClip:
      return std::isnan(x) ? x : std::clamp(x, kParams.a, kParams.b);
    case UnaryOp::kElu:
      return x < 0 ? kParams.a * (quant::Exp(x) - 1) : x;
    case UnaryOp::kHardSigmoid:
      return within01(kParams.a * x + kParams.b);
    case UnaryOp::kHardSwish:
      return x * within01(x * (1.0f / 6) + 0.5f);
    case UnaryOp::kLeakyRelu:
      return x < 0 ? kParams.a * x : x;
    case UnaryOp::kErf:
      return quant::Erf(x);
    case UnaryOp::kExp:
      return quant::Exp(x);
    case UnaryOp::kGelu:
      return quant::Gelu(x);
    case UnaryOp::kGeluTanh:
      return quant::GeluTanh(x);
    case UnaryOp::kNeg:
      return -x;
    case UnaryOp::kReciprocal:
      return 1.0f / x;
    case UnaryOp::kRelu:
      return x < 0 ? 0.0f : x;
    case UnaryOp::kSigmoid:
      return quant::Sigmoid(x);
    case UnaryOp::kSilu:
      return x * quant::Sigmoid(x);
    case UnaryOp::kSqrt:
      return std::sqrt(x);
    case UnaryOp::kTanh:
      return quant::Tanh(x);
  }
  return kNan;
}

float Truth(BinaryOp op, float a, float b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMax:
      return std::isnan(a) || std::isnan(b) ? kNan : (a > b ? a : b);
    case BinaryOp::kMin:
      return std::isnan(a) || std::isnan(b) ? kNan : (a < b ? a : b);
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kSub:
      return a - b;
  }
  return kNan;
}

const std::vector<float>& Corners() {
  static const std::vector<float> corners = {
      0.0f,     -0.0f,    kInf,     -kInf, kNan,       1e-45f,     -1e-45f, 1e-40f,  -3e-39f,   1.2e-38f, 3.4e38f,
      -3.4e38f, 88.7228f, 88.7229f, 89.0f, -87.33653f, -87.33655f, -88.0f,  -103.9f, 4.031543f, 4.0315f,  9.034243f,
      9.0343f,  5.7014f,  5.7016f,  8.0f,  -8.0f,      8.0001f,    0.5f,    -0.5f,   1.0f,      -1.0f};
  return corners;
}

class ElementwiseTest : public testing::TestWithParam<Arch> {};

TEST_P(ElementwiseTest, UnaryEqualsTheTruthForEveryLength) {
  for (int op = 0; op < kUnaryOps; ++op) {
    for (int64_t n = 1; n <= 70; ++n) {
      const auto seed = static_cast<uint32_t>(op * 100 + n);
      std::mt19937 gen(seed);
      std::normal_distribution<float> normal(0.0f, 3.0f);
      std::vector<float> x(n), y(n + 1, -7.0f);
      for (float& v : x) v = gen() % 4 == 0 ? Corners()[gen() % Corners().size()] : normal(gen);
      Unary(GetParam(), static_cast<UnaryOp>(op), x.data(), y.data(), n, kParams);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_TRUE(Same(y[i], Truth(static_cast<UnaryOp>(op), x[i])))
            << "op " << op << " seed " << seed << " x " << x[i] << ": " << y[i];
      }
      ASSERT_EQ(y[n], -7.0f);
      Unary(GetParam(), static_cast<UnaryOp>(op), x.data(), x.data(), n, kParams);
      for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(Same(x[i], y[i]));
    }
  }
}

// A prime stride through all float patterns, NaNs and denormals included.
TEST_P(ElementwiseTest, UnaryEqualsTheTruthAllOverTheFloats) {
  constexpr int64_t kBlock = 4096;
  constexpr uint32_t kStride = 4507;
  std::vector<float> x(kBlock), y(kBlock);
  for (int op = 0; op < kUnaryOps; ++op) {
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
      for (float& v : x) {
        v = std::bit_cast<float>(static_cast<uint32_t>(bits));
        bits += kStride;
      }
      Unary(GetParam(), static_cast<UnaryOp>(op), x.data(), y.data(), kBlock, kParams);
      for (int64_t i = 0; i < kBlock; ++i) {
        ASSERT_TRUE(Same(y[i], Truth(static_cast<UnaryOp>(op), x[i]))) << "op " << op << " x " << x[i] << ": " << y[i];
      }
    }
  }
}

TEST_P(ElementwiseTest, BinaryBroadcastsRowsAndColumns) {
  for (int op = 0; op < kBinaryOps; ++op) {
    for (int64_t n = 1; n <= 70; n += 1) {
      const auto seed = static_cast<uint32_t>(7000 + op * 100 + n);
      std::mt19937 gen(seed);
      std::normal_distribution<float> normal(0.0f, 3.0f);
      constexpr int64_t kRows = 3;
      std::vector<float> a(kRows * n), b(kRows * n), y(kRows * (n + 2), -7.0f);
      for (float& v : a) v = gen() % 8 == 0 ? Corners()[gen() % Corners().size()] : normal(gen);
      for (float& v : b) v = gen() % 8 == 0 ? Corners()[gen() % Corners().size()] : normal(gen);
      const int64_t a_row = gen() % 2 != 0 ? n : 0, b_row = gen() % 2 != 0 ? n : 0;
      const int64_t a_col = gen() % 3 != 0, b_col = gen() % 3 != 0;
      Binary(GetParam(), static_cast<BinaryOp>(op), {a.data(), a_row, a_col}, {b.data(), b_row, b_col}, y.data(), n + 2,
             1, kRows, n);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < n + 2; ++c) {
          const float got = y[r * (n + 2) + c];
          if (r == 0 || c >= n) {
            ASSERT_EQ(got, -7.0f) << "written outside of the range";
            continue;
          }
          const float va = a[r * a_row + c * a_col], vb = b[r * b_row + c * b_col];
          const float want = Truth(static_cast<BinaryOp>(op), va, vb);
          ASSERT_TRUE(Same(got, want)) << "op " << op << " seed " << seed << ": " << va << " " << vb << " -> " << got;
        }
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
TEST_P(ElementwiseTest, LookupTakesEveryByteForEveryLength) {
  std::mt19937 gen(11);
  uint8_t table[256];
  for (uint8_t& t : table) t = static_cast<uint8_t>(gen());
  for (int64_t n = 0; n <= 300; ++n) {
    std::vector<uint8_t> x(static_cast<size_t>(n)), y(x.size() + 1, 0xA5);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i + static_cast<size_t>(n) * 37);
    Lookup(GetParam(), x.data(), table, y.data(), n);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], table[x[i]]) << "byte " << i << " of " << n;
    ASSERT_EQ(y.back(), 0xA5);
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, ElementwiseTest, testing::ValuesIn(SupportedArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
