// The certificate of PackWeights (SafeQuads) and the products that rest on it, with weights at the limit and beyond.
#include <cstring>
#include <vector>

#include "octavo/kernels/gemm/gemm.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

PackedWeights Pack(const std::vector<int8_t>& w, int64_t k, int64_t n) {
  auto packed = PackWeights({.data = w.data(), .k = k, .n = n});
  EXPECT_TRUE(packed.has_value());
  return std::move(*packed);
}

int SafeQuadsOf(const std::vector<int8_t>& column) {
  return Pack(column, static_cast<int64_t>(column.size()), 1).SafeQuads(0);
}

TEST(Certificate, KnownLimits) {
  EXPECT_EQ(SafeQuadsOf({64, 64}), 2);
  EXPECT_EQ(SafeQuadsOf({64, 65}), 0);
  EXPECT_EQ(SafeQuadsOf({-64, -64}), 2);
  EXPECT_EQ(SafeQuadsOf({-64, -65}), 0);
  EXPECT_EQ(SafeQuadsOf({-128, 0}), 2);
  EXPECT_EQ(SafeQuadsOf({-128, -1}), 0);
  EXPECT_EQ(SafeQuadsOf({127, 1}), 2);
  EXPECT_EQ(SafeQuadsOf({127, 2}), 0);
  EXPECT_EQ(SafeQuadsOf({127, -128}), 2) << "opposite signs cannot saturate together";
  EXPECT_EQ(SafeQuadsOf({0, 65, 65, 0}), 2) << "k 1 and 2 are no pair of a lane";
  EXPECT_EQ(SafeQuadsOf({0, 0, 100, 29}), 0);
  EXPECT_EQ(SafeQuadsOf({64, 64, 0, 0, 0, 0, 64, 64}), 2) << "lanes of their own";
  EXPECT_EQ(SafeQuadsOf({64, 63, 0, 0, 1, 0}), 2);
  EXPECT_EQ(SafeQuadsOf({64, 64, 0, 0, 1, 0}), 1) << "each quad is safe, their sum is not";
  EXPECT_EQ(SafeQuadsOf({0, 0, 0, 0, 64, 64, 0, 0, 1, 0}), 2) << "quads 1 and 2 are not added up";
  EXPECT_EQ(SafeQuadsOf({0, 0, 0, 0, 0, 0, 0, 0, 127, 2}), 0) << "the last quad counts too";
}

int32_t Saturate(int32_t v) { return std::min(32767, std::max(-32768, v)); }

// Whether some activations make a lane over these weights leave s16: the worst ones are 255 where the sign is one and
// the same, and 0 elsewhere.
bool CanSaturate(const std::vector<int8_t>& w) {
  int32_t most = 0, least = 0;
  for (const int8_t v : w) (v > 0 ? most : least) += 255 * v;
  return Saturate(most) != most || Saturate(least) != least;
}

TEST(Certificate, SaysWhatSaturatingArithmeticSays) {
  int seen[3] = {};
  for (int trial = 0; trial < 4000; ++trial) {
    const int most = RandomInt(20, 127);
    std::vector<int8_t> w(static_cast<size_t>(8 * RandomInt(1, 3)));
    for (auto& v : w) v = static_cast<int8_t>(RandomInt(0, 3) == 0 ? RandomInt(-most - 1, most) : RandomInt(-9, 9));
    int want = 2;
    for (size_t k = 0; k < w.size(); k += 8) {
      for (const size_t lane : {k, k + 2}) {
        if (CanSaturate({w[lane], w[lane + 1]}) || CanSaturate({w[lane + 4], w[lane + 5]})) want = 0;
        if (CanSaturate({w[lane], w[lane + 1], w[lane + 4], w[lane + 5]})) want = std::min(want, 1);
      }
    }
    ASSERT_EQ(SafeQuadsOf(w), want) << ::testing::PrintToString(w);
    ++seen[want];
  }
  for (const int count : seen) EXPECT_GT(count, 100);
}

TEST(Certificate, IsOfEachPanel) {
  std::vector<int8_t> w(4 * 40, 1);
  w[1 * 40 + 20] = 127, w[0 * 40 + 20] = 2;
  const PackedWeights packed = Pack(w, 4, 40);
  EXPECT_EQ(packed.SafeQuads(0), 2);
  EXPECT_EQ(packed.SafeQuads(1), 0);
  EXPECT_EQ(packed.SafeQuads(2), 2) << "padding columns are zeros";
}

// Every lane of 2 `quads` neighbours holds exactly what still fits; from the first unsafe column on it holds one more.
std::vector<int8_t> WeightsAtTheLimit(int64_t k, int64_t n, int quads, int64_t first_unsafe) {
  std::vector<int8_t> w(static_cast<size_t>(k * n));
  for (int64_t column = 0; column < n; ++column) {
    const int sign = RandomInt(0, 1) == 0 ? 1 : -1;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t lane_begin = i / 4 / quads * 4 * quads + i % 4 / 2 * 2;
      int value = 128 / (2 * quads);
      if (column >= first_unsafe && i == lane_begin) value += 1;
      w[static_cast<size_t>(i * n + column)] = static_cast<int8_t>(sign * value);
    }
  }
  return w;
}

class CertificateArch : public ArchTest {
 protected:
  // The float outputs are the sums themselves: scales of 1, no bias.
  void Compare(const PackedWeights& w, DType dtype, int64_t m, const std::vector<uint8_t>& x, int32_t zero_point) {
    const float one = 1.0f;
    std::vector<float> want(static_cast<size_t>(m * w.n())), got(want.size(), -1.0f);
    GemmArgs args;
    args.x = {x.data(), dtype, w.k(), zero_point, 1.0f};
    args.y = {.w = &w, .w_scale = &one, .w_scale_per_column = false, .y = want.data(), .stride = w.n()};
    GemmReference(args, {0, m}, {0, ColumnBlocks(w.n())});
    args.y.y = got.data();
    AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), dtype, w.k()));
    Gemm(GetParam(), args, {0, m}, {0, ColumnBlocks(w.n())}, scratch.data());
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
        << "m " << m << " k " << w.k() << " n " << w.n() << " zero point " << zero_point;
    for (const float v : want) largest_ = std::max(largest_, std::abs(v));
  }
  float largest_ = 0;
};

TEST_P(CertificateArch, WeightsAtTheLimitAndBeyond) {
  for (const int quads : {1, 2}) {
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17}) {
      const int64_t k = RandomInt(1, 80), n = RandomInt(1, 200);
      // All certified, none, or a border between blocks, which makes one call use both forms.
      for (const int64_t border : {n, int64_t{0}, int64_t{64}}) {
        const std::vector<int8_t> weights = WeightsAtTheLimit(k, n, quads, border);
        const PackedWeights w = Pack(weights, k, n);
        if (border != 64 && k >= 8) {
          ASSERT_EQ(w.SafeQuads(0), border == n ? quads : quads - 1);
        }
        std::vector<uint8_t> x(static_cast<size_t>(m * k));
        for (const int value : {255, 0, 128, -1}) {
          for (auto& v : x) v = static_cast<uint8_t>(value >= 0 ? value : RandomInt(0, 1) * 255);
          Compare(w, DType::kU8, m, x, 0);
          Compare(w, DType::kU8, m, x, 255);
          Compare(w, DType::kS8, m, x, -128);
        }
      }
    }
  }
  EXPECT_GT(largest_, 255.0f * 64 * 20) << "sums of nearly nothing prove nothing";
}

TEST_P(CertificateArch, RandomWeightsOfSevenAndSixBits) {
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t m = RandomInt(1, 40), k = RandomInt(1, 300), n = RandomInt(1, 140);
    const int most = trial % 2 == 0 ? 64 : 32;
    std::vector<int8_t> weights(static_cast<size_t>(k * n));
    for (auto& v : weights) v = static_cast<int8_t>(RandomInt(-most, most));
    const PackedWeights w = Pack(weights, k, n);
    for (int64_t p = 0; p < w.n_padded() / 16; ++p) ASSERT_GE(w.SafeQuads(p), most == 64 ? 1 : 2);
    std::vector<uint8_t> x(static_cast<size_t>(m * k));
    for (auto& v : x) v = static_cast<uint8_t>(RandomInt(0, 255));
    Compare(w, RandomInt(0, 1) == 0 ? DType::kU8 : DType::kS8, m, x, RandomInt(0, 127));
  }
  EXPECT_GT(largest_, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(All, CertificateArch, ::testing::ValuesIn(VectorArchs()), ArchTestName);

}  // namespace
}  // namespace octavo::kernels
