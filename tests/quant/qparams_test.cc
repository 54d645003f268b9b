#include "octavo/quant/numeric/qparams.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace octavo::quant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(QParams, KnownAnswers) {
  EXPECT_EQ(AffineParams(-1, 1, DType::kU8), (QParams{DType::kU8, 2.0f / 255, 127}));  // 1 / scale is just below 127.5
  EXPECT_EQ(AffineParams(0, 255, DType::kU8), (QParams{DType::kU8, 1, 0}));
  EXPECT_EQ(AffineParams(0, 255, DType::kS8), (QParams{DType::kS8, 1, -128}));
  EXPECT_EQ(AffineParams(-255, 0, DType::kU8), (QParams{DType::kU8, 1, 255}));
  EXPECT_EQ(AffineParams(-51, 204, DType::kU8), (QParams{DType::kU8, 1, 51}));
  EXPECT_EQ(AffineParams(0, 65535, DType::kU16), (QParams{DType::kU16, 1, 0}));
  EXPECT_EQ(AffineParams(0, 15, DType::kU4), (QParams{DType::kU4, 1, 0}));
  EXPECT_EQ(SymmetricParams(-254, 100, DType::kS8), (QParams{DType::kS8, 2, 0}));
  EXPECT_EQ(SymmetricParams(0, 254, DType::kU8), (QParams{DType::kU8, 2, 128}));
  EXPECT_EQ(SymmetricParams(-896, 1, DType::kE4M3FN), (QParams{DType::kE4M3FN, 2, 0}));
  EXPECT_EQ(AffineParams(0, 114688, DType::kE5M2), (QParams{DType::kE5M2, 2, 0}));
}

TEST(QParams, ZeroIsAlwaysInside) {
  EXPECT_EQ(AffineParams(100, 255, DType::kU8), AffineParams(0, 255, DType::kU8));
  EXPECT_EQ(AffineParams(-255, -100, DType::kU8), AffineParams(-255, 0, DType::kU8));
  EXPECT_EQ(AffineParams(0, 0, DType::kU8), (QParams{DType::kU8, 1, 0}));
  EXPECT_EQ(AffineParams(0, 0, DType::kS8), (QParams{DType::kS8, 1, 0}));
  EXPECT_EQ(SymmetricParams(0, 0, DType::kU8), (QParams{DType::kU8, 1, 128}));
}

TEST(QParams, ScaleIsAlwaysUsable) {
  for (const DType t : {DType::kU8, DType::kS8, DType::kU16, DType::kE4M3FN, DType::kE5M2}) {
    for (const float lo : {0.0f, -1e-45f, -FLT_MIN, -1.0f, -FLT_MAX}) {
      for (const float hi : {0.0f, 1e-45f, FLT_MIN, 1.0f, FLT_MAX}) {
        for (const bool power : {false, true}) {
          for (const QParams& p : {AffineParams(lo, hi, t, {.power_of_two = power}),
                                   SymmetricParams(lo, hi, t, {.power_of_two = power})}) {
            EXPECT_TRUE(std::isnormal(p.scale)) << lo << " " << hi << " " << Name(t) << " " << p.scale;
            EXPECT_EQ(FakeQuant(0.0f, p), 0.0f) << lo << " " << hi << " " << Name(t);
          }
        }
      }
    }
  }
}

TEST(QParams, PowerOfTwoIsTheNextThatDoesNotClip) {
  EXPECT_EQ(AffineParams(0, 255, DType::kU8, {.power_of_two = true}).scale, 1.0f);
  EXPECT_EQ(AffineParams(0, 255.1f, DType::kU8, {.power_of_two = true}).scale, 2.0f);
  EXPECT_EQ(SymmetricParams(-1, 1, DType::kS8, {.power_of_two = true}).scale, 1.0f / 64);
}

// Inside the range nothing is further from its image than half a step, but for the half step that rounding the zero
// point may cost at an end.
TEST(QParams, RoundTripErrorIsHalfAStep) {
  const unsigned seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> unit(0, 1);
  for (int i = 0; i < 2000; ++i) {
    const float lo = -std::ldexp(unit(random), static_cast<int>(random() % 40) - 20);
    const float hi = std::ldexp(unit(random), static_cast<int>(random() % 40) - 20);
    for (const DType t : {DType::kU8, DType::kS8}) {
      const QParams p = AffineParams(lo, hi, t);
      for (int k = 0; k <= 10; ++k) {
        const float x = lo + (hi - lo) * static_cast<float>(k) / 10;
        const double bound = (k == 0 || k == 10 ? 1.0 : 0.5) * p.scale * 1.0001;
        const double near_end = std::min(std::fabs(double(x) - lo), std::fabs(double(hi) - x));
        ASSERT_LE(std::fabs(double(FakeQuant(x, p)) - x), near_end < p.scale ? p.scale * 1.0001 : bound)
            << lo << " " << hi << " " << x;
      }
    }
  }
}

TEST(QParams, ChannelScales) {
  // [K = 2, N = 3], one scale per column.
  const std::vector<float> w = {1, 0, -254, -127, 0, 2};
  std::vector<float> scales(3);
  EXPECT_EQ(ChannelScales(w, 2, 3, 1, DType::kS8, scales), -1);
  EXPECT_EQ(scales, (std::vector<float>{1, 1, 2}));
  // The same numbers as [N = 2, K = 3], one scale per row.
  scales.resize(2);
  EXPECT_EQ(ChannelScales(w, 1, 2, 3, DType::kS8, scales), -1);
  EXPECT_EQ(scales, (std::vector<float>{2, 1}));
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    std::vector<float> broken = w;
    broken[4] = bad;
    scales.resize(3);
    EXPECT_EQ(ChannelScales(broken, 2, 3, 1, DType::kS8, scales), 1);
  }
}

}  // namespace
}  // namespace octavo::quant
