// Rows as codes of 8 and 4 bits with a scale for each 32 columns, against what the contract says in doubles.
#include "octavo/quant/numeric/coded_row.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace octavo::quant {
namespace {

std::vector<float> ThroughCodes(const std::vector<float>& x, int bits = 8) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> row(CodedRowBytes(n, bits) + 1, std::byte{0x5a});
  EncodeRow(x.data(), n, bits, row.data());
  EXPECT_EQ(row.back(), std::byte{0x5a});
  std::vector<float> y(x.size());
  DecodeRow(row.data(), n, bits, y.data());
  return y;
}

TEST(CodedRow, ValuesAreTheNearestCodesOfTheirBlock) {
  std::mt19937 gen(20261127);
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(trial);
    std::vector<float> x(std::uniform_int_distribution<size_t>(1, 140)(gen));
    const float size = std::ldexp(1.0f, std::uniform_int_distribution<int>(-140, 120)(gen));
    for (float& v : x) v = std::normal_distribution<float>()(gen) * size;
    const std::vector<float> y = ThroughCodes(x), of_4 = ThroughCodes(x, 4);
    for (size_t b = 0; b < x.size(); b += 32) {
      double most = 0;
      for (size_t i = b; i < std::min(x.size(), b + 32); ++i) most = std::max(most, std::abs(double{x[i]}));
      // The farthest value is a code; others reach to it on its own side and to 7 of 8 on the other.
      const double half = most / 16, off = most * 0x1p-22 + 8 * 0x1p-150;
      for (size_t i = b; i < std::min(x.size(), b + 32); ++i) {
        EXPECT_LE(std::abs(of_4[i] - double{x[i]}), 2 * half + off) << i;
        if (std::abs(x[i]) <= 7.4 / 8 * most) {
          EXPECT_LE(std::abs(of_4[i] - double{x[i]}), half + off) << i;
        }
      }
      // A scale that is subnormal is off by up to 2^-150, which 127 codes multiply.
      for (size_t i = b; i < std::min(x.size(), b + 32); ++i)
        EXPECT_LE(std::abs(y[i] - double{x[i]}), most * (0.5 / 127 + 0x1p-22) + 128 * 0x1p-150) << i;
    }
    EXPECT_EQ(ThroughCodes(y).size(), y.size());
  }
}

TEST(CodedRow, EdgesOfTheRange) {
  EXPECT_EQ(ThroughCodes({0, -0.0f, 0}), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(ThroughCodes({127, -127, 0.5f, 1.5f, 2.5f}), (std::vector<float>{127, -127, 0, 2, 2}));  // half to even
  constexpr float kLeast = std::numeric_limits<float>::denorm_min(), kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(ThroughCodes({kLeast, -kLeast}), (std::vector<float>{0, 0}));
  EXPECT_NEAR(ThroughCodes({kMost, -kMost})[0] / kMost, 1, 1e-6);
  EXPECT_EQ(ThroughCodes({8, -8, 0.5f, 1.5f, 6.6f}, 4), (std::vector<float>{8, -7, 0, 2, 7}));
  EXPECT_EQ(ThroughCodes({-8, 8, 0.5f, 1.5f, 6.6f}, 4), (std::vector<float>{-8, 7, 0, 2, 7}));
  EXPECT_EQ(ThroughCodes({0, -0.0f, 0}, 4), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(ThroughCodes({kMost, -kMost / 2}, 4), (std::vector<float>{kMost, -kMost / 2}));
}

TEST(CodedRow, ABlockWithoutMeaningIsNaNAndNoOther) {
  for (const float no : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(70, 1.0f);
    x[40] = no;
    for (const int bits : {8, 4}) {
      const std::vector<float> y = ThroughCodes(x, bits);
      for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i >= 32 && i < 64) << i;
    }
  }
}

}  // namespace
}  // namespace octavo::quant
