// Weights of 4 bits with steps give the bits of the same integers in 8 bits.
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/qkv/qkv.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;
using ::testing::HasSubstr;

// Codes, steps and zeros as a model holds them, and the weights that they are.
struct Stepped {
  int64_t k, n;
  std::vector<uint8_t> codes, step, zero;
  std::vector<int8_t> w;

  WeightSource Source() const {
    return {.data = codes.data(), .dtype = DType::kU4, .k = k, .n = n, .step = step.data(), .step_zero = zero.data()};
  }
};

void Put(std::vector<uint8_t>& to, int64_t i, int nibble) {
  to[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(nibble << (i % 2 * 4));
}

// extreme: steps and codes at the ends of what s8 holds.
Stepped Random(int64_t k, int64_t n, bool extreme) {
  const int64_t blocks = (k + kStepRows - 1) / kStepRows;
  Stepped s{k, n, std::vector<uint8_t>(static_cast<size_t>(k * n + 1) / 2), {}, {}, {}};
  s.step = s.zero = std::vector<uint8_t>(static_cast<size_t>(blocks * n + 1) / 2);
  s.w.resize(static_cast<size_t>(k * n));
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t c = 0; c < n; ++c) {
      const int zero = extreme ? RandomInt(0, 1) * 15 : RandomInt(0, 15);
      const int most = 127 / std::max(zero, 15 - zero), step = extreme ? most : RandomInt(0, std::min(most, 15));
      Put(s.step, b * n + c, step), Put(s.zero, b * n + c, zero);
      for (int64_t i = b * kStepRows; i < std::min(k, (b + 1) * kStepRows); ++i) {
        const int code = extreme ? 15 - zero : RandomInt(0, 15);
        Put(s.codes, i * n + c, code);
        s.w[static_cast<size_t>(i * n + c)] = static_cast<int8_t>(step * (code - zero));
      }
    }
  }
  return s;
}

class SteppedArch : public ArchTest {
 protected:
  void Compare(const Stepped& s, int64_t m, DType x_dtype, bool rows, const Tuning& tuning) {
    const auto narrow = PackWeights(s.Source());
    ASSERT_TRUE(narrow.has_value()) << narrow.error();
    const auto wide = PackWeights({.data = s.w.data(), .k = s.k, .n = s.n});
    ASSERT_TRUE(wide.has_value());
    const int64_t stride = s.k + RandomInt(0, 3), y_stride = s.n + RandomInt(0, 3);
    std::vector<uint8_t> x(static_cast<size_t>(m * stride));
    const bool ends = RandomInt(0, 2) == 0;
    for (auto& v : x) v = static_cast<uint8_t>(ends ? RandomInt(0, 1) * 255 : RandomInt(0, 255));
    std::vector<float> scale(static_cast<size_t>(s.n)), bias(scale.size()), row_scale(static_cast<size_t>(m));
    std::vector<uint8_t> row_zero(static_cast<size_t>(m));
    for (auto& v : scale) v = RandomFloat(0.001f, 0.002f);
    for (auto& v : bias) v = RandomFloat(-4, 4);
    for (auto& v : row_scale) v = RandomFloat(0.01f, 0.02f);
    for (auto& v : row_zero) v = static_cast<uint8_t>(RandomInt(0, 255));
    std::vector<float> want(static_cast<size_t>(m * y_stride), -7.0f), got = want;
    GemmArgs args;
    args.x = {.data = x.data(), .dtype = x_dtype, .stride = stride, .zero_point = rows ? 0 : RandomInt(0, 100)};
    if (rows) args.x.row_scale = row_scale.data();
    if (rows && x_dtype == DType::kU8) args.x.row_zero_point = row_zero.data();
    args.y = {.w = &*wide, .w_scale = scale.data(), .bias = bias.data(), .y = want.data(), .stride = y_stride};
    args.tuning = tuning;
    GemmReference(args, {0, m}, {0, ColumnBlocks(s.n)});
    args.y.w = &*narrow;
    std::vector<float> reference = got;
    args.y.y = reference.data();
    GemmReference(args, {0, m}, {0, ColumnBlocks(s.n)});
    ASSERT_EQ(std::memcmp(want.data(), reference.data(), want.size() * sizeof(float)), 0);
    args.y.y = got.data();
    AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), x_dtype, s.k, true));
    Gemm(GetParam(), args, {0, m}, {0, ColumnBlocks(s.n)}, scratch.data());
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
        << "m " << m << " k " << s.k << " n " << s.n << " " << quant::Name(x_dtype);
  }
  static Tuning RandomTuning() {
    return {
        .decodes_once = RandomInt(0, 1) != 0, .one_stream = RandomInt(0, 1) != 0, .asks_near = RandomInt(0, 1) != 0};
  }
};

TEST_P(SteppedArch, EqualsEightBits) {
  for (int trial = 0; trial < 120; ++trial) {
    const int64_t m = trial % 3 == 0 ? RandomInt(9, 70) : RandomInt(1, 9), k = RandomInt(1, 300), n = RandomInt(1, 200);
    const bool signed_x = RandomInt(0, 2) == 0;
    Compare(Random(k, n, RandomInt(0, 3) == 0), m, signed_x ? DType::kS8 : DType::kU8, RandomInt(0, 1) != 0,
            RandomTuning());
    if (HasFatalFailure()) return;
  }
}

TEST_P(SteppedArch, DepthsOfModels) {
  for (const int64_t k : {64, 128, 384, 1024, 2048, 5632}) {
    for (const int64_t m : {1, 4, 8, 33}) {
      Compare(Random(k, 130, k == 128), m, DType::kU8, true, RandomTuning());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SteppedArch, BesideWeightsOfEightBits) {
  const Stepped a = Random(96, 100, false), b = Random(96, 70, false);
  const auto narrow = PackWeights(a.Source()), wide = PackWeights({.data = b.w.data(), .k = b.k, .n = b.n});
  ASSERT_TRUE(narrow.has_value() && wide.has_value());
  for (const int64_t m : {1, 5, 40}) {
    std::vector<uint8_t> x(static_cast<size_t>(m * 96));
    for (auto& v : x) v = static_cast<uint8_t>(RandomInt(0, 255));
    const float one = 1.0f;
    std::vector<float> y[2] = {std::vector<float>(static_cast<size_t>(m * 100)),
                               std::vector<float>(static_cast<size_t>(m * 70))};
    auto want = std::to_array({y[0], y[1]});
    QkvArgs args;
    args.x = {.data = x.data(), .stride = 96, .zero_point = 7};
    args.count = 2;
    for (size_t i = 0; i < 2; ++i) {
      args.branch[i] = {.w = i == 0 ? &*narrow : &*wide,
                        .w_scale = &one,
                        .w_scale_per_column = false,
                        .y = want[i].data(),
                        .stride = i == 0 ? 100 : 70};
      GemmReference({args.x, args.branch[i]}, {0, m}, {0, 2});
      args.branch[i].y = y[i].data();
    }
    AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), DType::kU8, 96, true));
    Qkv(GetParam(), args, {0, m}, {0, 4}, scratch.data());
    EXPECT_EQ(y[0], want[0]);
    EXPECT_EQ(y[1], want[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SteppedArch, ::testing::ValuesIn(VectorArchs()), ArchTestName);

TEST(Stepped, WhatAFileKeepsIsTheSame) {
  const Stepped s = Random(70, 50, false);
  const auto packed = PackWeights(s.Source());
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(packed->bytes(), 128 / 64 * 576 * 4 + 64 * 4 + 4u);
  const auto again = PackedWeights::Of(s.Source(), packed->Arrays());
  ASSERT_TRUE(again.has_value());
  for (int64_t i = 0; i < 70; ++i) {
    for (int64_t c = 0; c < 50; ++c) ASSERT_EQ(again->At(i, c), s.w[static_cast<size_t>(i * 50 + c)]);
  }
  EXPECT_FALSE(PackedWeights::Of({.data = s.w.data(), .k = 70, .n = 50}, packed->Arrays()).has_value());
}

TEST(Stepped, Refusals) {
  Stepped s = Random(32, 16, false);
  WeightSource source = s.Source();
  source.step = nullptr;
  EXPECT_THAT(PackWeights(source).error(), HasSubstr("need steps"));
  std::ranges::fill(s.codes, 0xFF), std::ranges::fill(s.step, 0xFF), std::ranges::fill(s.zero, 0x00);
  EXPECT_THAT(PackWeights(s.Source()).error(), HasSubstr("row 0 has a weight of 225 steps"));
}

}  // namespace
}  // namespace octavo::kernels
