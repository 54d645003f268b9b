#include "octavo/kernels/gemm/gemm.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;
using ::testing::HasSubstr;

// One product with everything it needs; the output is filled with a pattern so that writes outside are seen.
struct Case {
  int64_t m, k, n, x_stride, y_stride;
  DType x_dtype, y_dtype;
  Activation activation = Activation::kNone;
  bool bias = true;
  bool per_column = true;
  Tuning tuning;
  int32_t x_zero_point = 0, y_zero_point = 0;
  float x_scale = 0.02f, y_scale = 0.1f;
  std::vector<uint8_t> x;
  std::vector<int8_t> w;                            // [k][n]
  std::vector<float> w_scale, biases, post_scales;  // post_scales empty: none
  std::vector<float> residuals;                     // [m][n + 3]; empty: none
  std::vector<float> row_scales;                    // empty: x_scale for all
  std::vector<uint8_t> row_zeros;                   // empty, or in use where row_scales are, instead of x_zero_point
  float XScale(int64_t row) const { return row_scales.empty() ? x_scale : row_scales[static_cast<size_t>(row)]; }

  static constexpr uint8_t kPattern = 0xA5;
  size_t ElementBytes() const { return y_dtype == DType::kF32 ? 4 : y_dtype == DType::kBF16 ? 2 : 1; }
  std::vector<uint8_t> EmptyOutput() const {
    return std::vector<uint8_t>(static_cast<size_t>(m * y_stride) * ElementBytes(), kPattern);
  }
  GemmArgs Args(const PackedWeights& packed, void* y) const {
    GemmArgs args;
    args.x = {.data = x.data(),
              .dtype = x_dtype,
              .stride = x_stride,
              .zero_point = HasRowZeros() ? 0 : x_zero_point,
              .scale = x_scale,
              .row_scale = row_scales.empty() ? nullptr : row_scales.data(),
              .row_zero_point = HasRowZeros() ? row_zeros.data() : nullptr};
    args.y = {.w = &packed,
              .w_scale = w_scale.data(),
              .w_scale_per_column = per_column,
              .bias = bias ? biases.data() : nullptr,
              .activation = activation,
              .post_scale = post_scales.empty() ? nullptr : post_scales.data(),
              .residual = residuals.empty() ? nullptr : residuals.data(),
              .residual_stride = n + 3,
              .y = y,
              .dtype = y_dtype,
              .scale = y_scale,
              .zero_point = y_zero_point,
              .stride = y_stride};
    args.tuning = tuning;
    return args;
  }
  bool HasRowZeros() const { return !row_scales.empty() && !row_zeros.empty(); }
  int ZeroOf(int64_t row) const { return HasRowZeros() ? row_zeros[static_cast<size_t>(row)] : x_zero_point; }
  int XAt(int64_t row, int64_t col) const {
    const uint8_t v = x[static_cast<size_t>(row * x_stride + col)];
    return x_dtype == DType::kU8 ? v : static_cast<int8_t>(v);
  }
};

constexpr DType kOutputs[] = {DType::kU8, DType::kS8, DType::kF32, DType::kBF16, DType::kE4M3FN, DType::kE5M2};

Case RandomCase(int64_t m, int64_t k, int64_t n) {
  Case c{};
  c.m = m, c.k = k, c.n = n;
  c.x_stride = k + RandomInt(0, 3);
  c.y_stride = n + RandomInt(0, 3);
  c.x_dtype = RandomInt(0, 1) == 0 ? DType::kU8 : DType::kS8;
  c.y_dtype = kOutputs[RandomInt(0, 5)];
  c.bias = RandomInt(0, 3) != 0;
  c.per_column = RandomInt(0, 3) != 0;
  c.tuning = {.decodes_once = RandomInt(0, 1) != 0, .one_stream = RandomInt(0, 1) != 0};
  c.x_zero_point = c.x_dtype == DType::kU8 ? RandomInt(0, 255) : RandomInt(-128, 127);
  c.y_zero_point = c.y_dtype == DType::kU8 ? RandomInt(0, 255) : RandomInt(-128, 127);
  const bool extreme = RandomInt(0, 4) == 0;  // only the ends of the ranges
  c.x.resize(static_cast<size_t>(m * c.x_stride));
  for (auto& v : c.x)
    v = static_cast<uint8_t>(extreme ? RandomInt(0, 1) * 127 + RandomInt(0, 1) * 128 : RandomInt(0, 255));
  c.w.resize(static_cast<size_t>(k * n));
  const int most = std::vector{127, 64, 32}[static_cast<size_t>(RandomInt(0, 2))];  // all, some or no panels certified
  for (auto& v : c.w)
    v = static_cast<int8_t>(extreme ? (RandomInt(0, 1) ? 127 : -128) : RandomInt(-most - most / 127, most));
  c.x_scale = std::ldexp(RandomFloat(1, 2), RandomInt(-8, -4));
  if (RandomInt(0, 3) == 0) {
    for (int64_t i = 0; i < m; ++i) c.row_scales.push_back(std::ldexp(RandomFloat(1, 2), RandomInt(-8, -4)));
    for (int64_t i = 0; c.x_dtype == DType::kU8 && i < m; ++i)
      c.row_zeros.push_back(static_cast<uint8_t>(RandomInt(0, 255)));
    if (RandomInt(0, 2) == 0) c.row_zeros.clear();
  }
  c.w_scale.resize(static_cast<size_t>(c.per_column ? n : 1));
  for (auto& v : c.w_scale) v = std::ldexp(RandomFloat(1, 2), RandomInt(-9, -5));
  c.biases.resize(static_cast<size_t>(n));
  for (auto& v : c.biases) v = RandomFloat(-4, 4);
  if (RandomInt(0, 3) == 0) {
    c.residuals.resize(static_cast<size_t>(m * (n + 3)));
    for (auto& v : c.residuals) v = RandomFloat(-4, 4);
  }
  // About a third of the outputs saturates.
  c.y_scale = 0.02f * 0.01f * 74.0f * 64.0f * std::sqrt(static_cast<float>(k)) / 100.0f * RandomFloat(0.3f, 3.0f);
  return c;
}

PackedWeights Pack(const Case& c) {
  auto packed = PackWeights({.data = c.w.data(), .k = c.k, .n = c.n});
  EXPECT_TRUE(packed.has_value());
  return std::move(*packed);
}

std::vector<uint8_t> RunReference(const Case& c, const PackedWeights& w) {
  std::vector<uint8_t> y = c.EmptyOutput();
  GemmReference(c.Args(w, y.data()), {0, c.m}, {0, ColumnBlocks(c.n)});
  return y;
}

std::vector<uint8_t> RunArch(const Case& c, const PackedWeights& w, Arch arch) {
  std::vector<uint8_t> y = c.EmptyOutput();
  AlignedArray<uint8_t> scratch(GemmScratchBytes(arch, c.x_dtype, c.k));
  Gemm(arch, c.Args(w, y.data()), {0, c.m}, {0, ColumnBlocks(c.n)}, scratch.data());
  return y;
}

std::string Describe(const Case& c) {
  return "m " + std::to_string(c.m) + " k " + std::to_string(c.k) + " n " + std::to_string(c.n) + " " +
         std::string(quant::Name(c.x_dtype)) + " -> " + std::string(quant::Name(c.y_dtype)) + " " +
         std::string(Name(c.activation)) + (c.bias ? " bias" : "") + (c.row_scales.empty() ? "" : " tokens") +
         (c.HasRowZeros() ? " with zero points" : "") + (c.residuals.empty() ? "" : " residual") +
         (c.per_column ? " columns" : "");
}

// ---- The reference against int64 and double.

TEST(GemmReference, EqualsExactArithmetic) {
  for (int trial = 0; trial < 60; ++trial) {
    Case c = RandomCase(RandomInt(1, 7), RandomInt(1, 90), RandomInt(1, 80));
    c.y_dtype = DType::kF32;
    const PackedWeights w = Pack(c);
    const std::vector<uint8_t> y = RunReference(c, w);
    int64_t largest = 0;
    for (int64_t m = 0; m < c.m; ++m) {
      for (int64_t n = 0; n < c.n; ++n) {
        int64_t acc = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          acc += int64_t{c.XAt(m, k) - c.ZeroOf(m)} * c.w[static_cast<size_t>(k * c.n + n)];
        }
        largest = std::max(largest, std::abs(acc));
        const double scale = double{c.XScale(m)} * c.w_scale[c.per_column ? static_cast<size_t>(n) : 0];
        const double bias = c.bias ? double{c.biases[static_cast<size_t>(n)]} : 0.0;
        const double residual = c.residuals.empty() ? 0.0 : double{c.residuals[static_cast<size_t>(m * (c.n + 3) + n)]};
        const double exact = static_cast<double>(acc) * scale + bias + residual;
        float got;
        std::memcpy(&got, y.data() + (m * c.y_stride + n) * 4, 4);
        // Five roundings, each of at most 2^-24 of |acc * scale| + |bias| + |residual|.
        const double bound =
            (std::abs(static_cast<double>(acc) * scale) + std::abs(bias) + std::abs(residual)) * 5.0 * 0x1p-24;
        ASSERT_NEAR(got, exact, bound) << Describe(c) << " at " << m << ", " << n;
      }
    }
    EXPECT_GT(largest, 0) << "a product of zeros proves nothing";
  }
}

TEST(GemmReference, QuantizesAsOnnxDoes) {
  // acc = x * 1, scale 0.5: y = x / 2; / 1.0 -> half to even; zero point after rounding; saturation.
  const std::vector<uint8_t> x = {0, 1, 2, 3, 4, 5, 7, 255};
  const int8_t one = 1;
  const float half = 0.5f;
  auto w = PackWeights({.data = &one, .k = 1, .n = 1});
  ASSERT_TRUE(w.has_value());
  std::vector<int8_t> y(x.size());
  GemmArgs args;
  args.x = {x.data(), DType::kU8, 1, 0, 1.0f};
  args.y = {
      .w = &*w, .w_scale = &half, .y = y.data(), .dtype = DType::kS8, .scale = 1.0f, .zero_point = 3, .stride = 1};
  GemmReference(args, {0, 8}, {0, 1});
  EXPECT_THAT(y, ::testing::ElementsAre(3, 3, 4, 5, 5, 5, 7, 127));  // 0 .5 1 1.5 2 2.5 3.5 127.5
}

TEST(GemmReference, QuickGeluAndBf16) {
  // acc = x - 128, scale 1/16: the definition in double, rounded to 8 bits of mantissa.
  std::vector<uint8_t> x(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i);
  const int8_t one = 1;
  const float sixteenth = 0.0625f;
  auto w = PackWeights({.data = &one, .k = 1, .n = 1});
  ASSERT_TRUE(w.has_value());
  std::vector<uint16_t> y(x.size());
  GemmArgs args;
  args.x = {x.data(), DType::kU8, 1, 128, 1.0f};
  args.y = {.w = &*w,
            .w_scale = &sixteenth,
            .activation = Activation::kQuickGelu,
            .y = y.data(),
            .dtype = DType::kBF16,
            .stride = 1};
  GemmReference(args, {0, 256}, {0, 1});
  for (int i = 0; i < 256; ++i) {
    const double v = (i - 128) / 16.0, exact = v / (1 + std::exp(-1.702 * v));
    const double got = std::bit_cast<float>(static_cast<uint32_t>(y[static_cast<size_t>(i)]) << 16);
    ASSERT_NEAR(got, exact, std::abs(exact) * (0x1p-8 + 0x1p-20)) << v;
  }
  EXPECT_EQ(y[128 + 16], 0x3F59) << "quick_gelu(1) = 0.8458 lies between 0x3F58 and 0x3F59, nearer to the latter";
}

// ---- Packing.

TEST(PackWeights, LayoutAndSums) {
  std::vector<int8_t> w(5 * 18);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<int8_t>(i * 7 % 251 - 125);
  auto packed = PackWeights({.data = w.data(), .k = 5, .n = 18});
  ASSERT_TRUE(packed.has_value()) << packed.error();
  EXPECT_EQ(packed->k_padded(), 64);
  EXPECT_EQ(packed->n_padded(), 32);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(packed->data()) % 64, 0u);
  for (int64_t n = 0; n < 32; ++n) {
    int32_t sum = 0;
    for (int64_t k = 0; k < 64; ++k) {
      const int8_t got = packed->data()[(n / 16) * 1024 + (k / 4) * 64 + n % 16 * 4 + k % 4];
      EXPECT_EQ(got, k < 5 && n < 18 ? w[static_cast<size_t>(k * 18 + n)] : 0) << k << ", " << n;
      sum += got;
    }
    EXPECT_EQ(packed->column_sums()[n], sum);
  }
}

TEST(PackWeights, TransposedAndUnsignedMeanTheSame) {
  const int64_t k = 37, n = 21;
  std::vector<int8_t> w(k * n), transposed(k * n);
  std::vector<uint8_t> shifted(k * n);
  for (int64_t i = 0; i < k * n; ++i) {
    w[i] = static_cast<int8_t>(RandomInt(-128, 127));
    shifted[i] = static_cast<uint8_t>(w[i] + 128);
    transposed[i % n * k + i / n] = w[i];
  }
  const int32_t zero_point = 128;
  auto a = PackWeights({.data = w.data(), .k = k, .n = n});
  auto b = PackWeights({.data = transposed.data(), .k = k, .n = n, .transposed = true});
  auto c = PackWeights({.data = shifted.data(), .dtype = DType::kU8, .k = k, .n = n, .zero_point = &zero_point});
  ASSERT_TRUE(a && b && c);
  const size_t bytes = static_cast<size_t>(a->k_padded() * a->n_padded());
  EXPECT_EQ(std::memcmp(a->data(), b->data(), bytes), 0);
  EXPECT_EQ(std::memcmp(a->data(), c->data(), bytes), 0);
}

TEST(PackWeights, RefusesWithASentence) {
  const std::vector<uint8_t> u8 = {0, 255};
  const int32_t zero_point = 100;
  auto range = PackWeights({.data = u8.data(), .dtype = DType::kU8, .k = 2, .n = 1, .zero_point = &zero_point});
  ASSERT_FALSE(range.has_value());
  EXPECT_THAT(range.error(), HasSubstr("weight [1, 0] minus its zero point 100 is 155"));
  EXPECT_THAT(PackWeights({.data = u8.data(), .dtype = DType::kF32, .k = 2, .n = 1}).error(), HasSubstr("f32"));
  EXPECT_THAT(PackWeights({.data = u8.data(), .k = 0, .n = 1}).error(), HasSubstr("no elements"));
}

TEST(PackWeights, OverflowIsProvenNotGuessed) {
  // 255 * 128 * k: 65793 fits into int32, 65794 does not.
  std::vector<int8_t> w(65794, -128);
  EXPECT_TRUE(PackWeights({.data = w.data(), .k = 65793, .n = 1}).has_value());
  auto too_deep = PackWeights({.data = w.data(), .k = 65794, .n = 1});
  ASSERT_FALSE(too_deep.has_value());
  EXPECT_THAT(too_deep.error(), HasSubstr("leaves int32"));
  w[0] = 0;  // it is the sum of the magnitudes that counts
  EXPECT_TRUE(PackWeights({.data = w.data(), .k = 65794, .n = 1}).has_value());
  std::vector<int8_t> wide(size_t{65796} * 16, -128);
  EXPECT_TRUE(PackWeights({.data = wide.data(), .k = 65793, .n = 16}).has_value());
  EXPECT_FALSE(PackWeights({.data = wide.data(), .k = 65796, .n = 16}).has_value());
}

// ---- Every vector form against the reference, bit for bit.

class GemmArch : public ArchTest {
 protected:
  void Compare(const Case& c) {
    const PackedWeights w = Pack(c);
    const std::vector<uint8_t> want = RunReference(c, w);
    const std::vector<uint8_t> got = RunArch(c, w, GetParam());
    ASSERT_TRUE(want == got) << Name(GetParam()) << " " << Describe(c);
    changed_ += want != c.EmptyOutput() ? 1 : 0;
  }
  int changed_ = 0;
};

TEST_P(GemmArch, EveryTailOfM) {
  for (int m = 1; m <= 70; ++m) Compare(RandomCase(m, RandomInt(1, 70), RandomInt(1, 70)));
  EXPECT_EQ(changed_, 70);
}

TEST_P(GemmArch, EveryTailOfK) {
  for (int k = 1; k <= 140; ++k) Compare(RandomCase(RandomInt(1, 20), k, RandomInt(1, 70)));
}

TEST_P(GemmArch, EveryTailOfN) {
  for (int n = 1; n <= 140; ++n) Compare(RandomCase(RandomInt(1, 20), RandomInt(1, 70), n));
}

TEST_P(GemmArch, SmallShapesAllCombinations) {
  for (int m = 1; m <= 13; ++m) {
    for (int k : {1, 2, 3, 4, 5, 15, 16, 17}) {
      for (int n : {1, 7, 8, 15, 16, 17, 63, 64, 65}) Compare(RandomCase(m, k, n));
    }
  }
}

TEST_P(GemmArch, EveryActivationAndOutput) {
  for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                                Activation::kSilu, Activation::kSigmoid, Activation::kTanh, Activation::kQuickGelu}) {
    for (DType y : kOutputs) {
      for (int trial = 0; trial < 3; ++trial) {
        Case c = RandomCase(RandomInt(1, 15), RandomInt(1, 200), RandomInt(1, 140));
        c.activation = activation;
        c.y_dtype = y;
        c.y_zero_point = RandomInt(0, 127);
        c.row_scales.clear();
        c.x_scale = 0.001f;
        c.y_scale = 0.02f;
        if (trial == 2) {
          c.post_scales.resize(static_cast<size_t>(c.n));
          for (auto& v : c.post_scales) v = std::ldexp(RandomFloat(1, 2), RandomInt(-4, 1));
        }
        Compare(c);
      }
    }
  }
}

TEST_P(GemmArch, SeveralBlocksOfRows) {
  Case c = RandomCase(401, 700, 130);  // more rows than are packed at once
  Compare(c);
  c = RandomCase(13, 9000, 70);
  Compare(c);
}

TEST_P(GemmArch, LargestSums) {
  Case c = RandomCase(7, 65793, 17);
  c.row_zeros.clear();  // they would make sums smaller, and s8 has none
  c.x_dtype = DType::kU8;
  c.x_zero_point = 0;
  for (auto& v : c.x) v = 255;
  for (auto& v : c.w) v = -128;
  c.y_dtype = DType::kF32;
  Compare(c);
  c.x_dtype = DType::kS8;
  c.x_zero_point = 127;
  for (auto& v : c.x) v = 0x80;
  Compare(c);
}

TEST_P(GemmArch, StrangeScales) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float y_scale :
       {0x1p-149f, 0x1p-120f, 0x1p-101f, 0x1p-100f, 0x1p100f, 0x1p101f, 0x1p127f, -0.5f, 0.0f, inf, nan}) {
    for (float x_scale : {1e-38f, 0.01f, 1e30f, inf, nan}) {
      for (DType y : {DType::kU8, DType::kS8}) {
        Case c = RandomCase(RandomInt(7, 15), 33, 140);
        c.y_dtype = y;
        c.y_zero_point = RandomInt(0, 127);
        c.y_scale = y_scale;
        c.row_scales.clear();
        c.x_scale = x_scale;
        Compare(c);
      }
    }
  }
}

// Fixed point (gemm/fixed-inl.h) must know where it does not know. In each column the bias puts one row at a distance of
// up to a few of its digits (2^-15 of a step) from a tie, where the roundings of the contract decide; biases of some
// steps, of thousands of them, and not finite.
TEST_P(GemmArch, NearTies) {
  for (int trial = 0; trial < 120; ++trial) {
    Case c = RandomCase(RandomInt(9, 30), RandomInt(1, 60), RandomInt(60, 200));
    c.y_dtype = RandomInt(0, 1) == 0 ? DType::kU8 : DType::kS8;
    c.y_zero_point = c.y_dtype == DType::kU8 ? RandomInt(0, 255) : RandomInt(-128, 127);
    c.activation = RandomInt(0, 2) == 0 ? Activation::kRelu : Activation::kNone;
    c.row_scales.clear(), c.residuals.clear();
    c.bias = true;
    c.y_scale = std::ldexp(trial % 8 == 0 ? 1.0f : RandomFloat(1, 2), RandomInt(-6, 3));
    const int64_t shown = RandomInt(0, 3) == 0 ? -1 : RandomInt(0, static_cast<int>(c.m) - 1);
    for (int64_t n = 0; n < c.n; ++n) {
      const int64_t row = shown >= 0 ? shown : RandomInt(0, static_cast<int>(c.m) - 1);
      int64_t sum = 0;
      for (int64_t k = 0; k < c.k; ++k) sum += (c.XAt(row, k) - c.x_zero_point) * c.w[static_cast<size_t>(k * c.n + n)];
      const float scale = c.x_scale * c.w_scale[static_cast<size_t>(c.per_column ? n : 0)];
      const int lowest = (c.y_dtype == DType::kU8 ? 0 : -128) - c.y_zero_point;
      const double tie = lowest + RandomInt(-1, 255) + 0.5 + std::ldexp(RandomFloat(-1, 1), RandomInt(-24, -12));
      const double bias = tie * static_cast<double>(c.y_scale) - static_cast<double>(sum) * static_cast<double>(scale);
      c.biases[static_cast<size_t>(n)] = static_cast<float>(bias);
    }
    if (trial % 10 == 9) {
      const float odd[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(), 3e38f};
      c.biases[static_cast<size_t>(RandomInt(0, static_cast<int>(c.n) - 1))] = odd[RandomInt(0, 3)];
    }
    Compare(c);
  }
}

TEST_P(GemmArch, SplitsGiveTheSameBits) {
  for (int trial = 0; trial < 20; ++trial) {
    const Case c = RandomCase(RandomInt(2, 80), RandomInt(1, 100), RandomInt(65, 300));
    const PackedWeights w = Pack(c);
    std::vector<uint8_t> y = c.EmptyOutput();
    AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), c.x_dtype, c.k));
    const int64_t row = RandomInt(1, static_cast<int>(c.m) - 1);
    const int64_t blocks = ColumnBlocks(c.n);
    const int64_t block = RandomInt(1, static_cast<int>(blocks) - 1);
    for (Range rows : {Range{row, c.m}, Range{0, row}}) {
      for (Range columns : {Range{0, block}, Range{block, blocks}}) {
        Gemm(GetParam(), c.Args(w, y.data()), rows, columns, scratch.data());
      }
    }
    ASSERT_TRUE(y == RunReference(c, w)) << Describe(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmArch, ::testing::ValuesIn(VectorArchs()), ArchTestName);

}  // namespace
}  // namespace octavo::kernels
