// fp8 products: codes against quant/numeric/fp8.h, the reference against double, every form against the reference bit for bit.
#include "octavo/kernels/fp8/fp8.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

template <class T>
T OneOf(std::initializer_list<T> values) {
  return values.begin()[RandomInt(0, static_cast<int>(values.size()) - 1)];
}

uint8_t RandomCode(DType t, bool finite) {
  for (;;) {
    const auto code = static_cast<uint8_t>(RandomInt(0, 255));
    if (!finite || std::isfinite(quant::Fp8ToF32(code, t))) return code;
  }
}

struct Branch {
  std::vector<uint8_t> codes;
  PackedFp8 w;
  std::vector<float> scale, bias, post, residual;  // residual: [m][y.residual_stride]
  GemmOutput y;
  int64_t n = 0;
};

struct Problem {
  int64_t m = 0, k = 0;
  GemmInput x;
  std::vector<uint8_t> x_codes;
  std::vector<Branch> branches;
  bool bf16_pairs = false;

  Fp8Args Args() {
    Fp8Args args{.x = x, .count = static_cast<int>(branches.size()), .out = {}, .bf16_pairs = bf16_pairs};
    args.x.data = x_codes.data();
    for (size_t i = 0; i < branches.size(); ++i) {
      Branch& b = branches[i];
      args.out[i] = {&b.w, b.y};
      args.out[i].y.w_scale = b.scale.data();
      args.out[i].y.bias = b.bias.empty() ? nullptr : b.bias.data();
      args.out[i].y.post_scale = b.post.empty() ? nullptr : b.post.data();
      args.out[i].y.residual = b.residual.empty() ? nullptr : b.residual.data();
    }
    return args;
  }
};

// The last row ends where its columns do, so that memory checkers see a read beyond.
void AddResidual(int64_t m, Branch& b) {
  b.y.residual_stride = b.n + RandomInt(0, 5);
  b.residual.clear();
  for (int64_t i = 0; i < (m - 1) * b.y.residual_stride + b.n; ++i) b.residual.push_back(RandomFloat(-4, 4));
}

Branch RandomBranch(int64_t m, int64_t k, Activation activation) {
  Branch b;
  b.n = RandomInt(1, 200);
  const DType t = OneOf({DType::kE4M3FN, DType::kE4M3FN, DType::kE5M2});
  for (int64_t i = 0; i < k * b.n; ++i) b.codes.push_back(RandomCode(t, true));
  b.w = std::move(PackFp8({.data = b.codes.data(), .dtype = t, .k = k, .n = b.n}).value());
  b.y.w_scale_per_column = RandomInt(0, 1) != 0;
  for (int64_t i = 0; i < (b.y.w_scale_per_column ? b.n : 1); ++i) b.scale.push_back(RandomFloat(1e-4f, 0.01f));
  if (RandomInt(0, 1) != 0) {
    for (int64_t i = 0; i < b.n; ++i) b.bias.push_back(RandomFloat(-2, 2));
  }
  if (RandomInt(0, 3) == 0) {
    for (int64_t i = 0; i < b.n; ++i) b.post.push_back(RandomFloat(0.5f, 2));
  }
  if (RandomInt(0, 2) == 0) AddResidual(m, b);
  b.y.activation = activation;
  b.y.dtype = OneOf({DType::kF32, DType::kBF16, DType::kE4M3FN, DType::kE5M2, DType::kU8, DType::kS8});
  b.y.scale = OneOf({0.01f, 0.3f, 5.0f, 0x1p-70f, 0x1p80f});
  b.y.zero_point = b.y.dtype == DType::kU8 ? RandomInt(0, 255) : b.y.dtype == DType::kS8 ? RandomInt(-128, 127) : 0;
  b.y.stride = b.n + RandomInt(0, 5);
  return b;
}

Problem RandomProblem(int most_rows, bool finite) {
  Problem p;
  p.m = RandomInt(1, most_rows);
  p.k = RandomInt(1, 400);
  p.x.dtype = OneOf({DType::kE4M3FN, DType::kE5M2});
  p.x.stride = p.k + RandomInt(0, 7);
  p.x.scale = RandomFloat(1e-3f, 0.02f);
  for (int64_t i = 0; i < p.m * p.x.stride; ++i)
    p.x_codes.push_back(RandomCode(p.x.dtype, finite || RandomInt(0, 40) != 0));
  const auto activation =
      OneOf({Activation::kNone, Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kQuickGelu,
             Activation::kGeluTanh, Activation::kSilu, Activation::kSigmoid, Activation::kTanh});
  const int count = OneOf({1, 1, 2, 3, 8});
  for (int i = 0; i < count; ++i) p.branches.push_back(RandomBranch(p.m, p.k, activation));
  for (Branch& b : p.branches) {
    if (RandomInt(0, 3) != 0) continue;  // one of four by heads
    HeadMajor& h = b.y.heads;
    h.size = RandomInt(1, static_cast<int>(b.n)), h.rows = RandomInt(1, static_cast<int>(p.m));
    b.y.stride = h.size + RandomInt(0, 5), h.head_stride = h.rows * b.y.stride;
    h.batch_stride = (b.n + h.size - 1) / h.size * h.head_stride;
  }
  return p;
}

// The outputs, one byte string a branch; what is not written stays 0xAB.
using Outputs = std::vector<std::vector<uint8_t>>;
Outputs Compute(Problem& p, Arch arch, bool reference, bool split) {
  Fp8Args args = p.Args();
  Outputs y;
  for (size_t i = 0; i < p.branches.size(); ++i) {
    const DType type = p.branches[i].y.dtype;
    const size_t size = type == DType::kF32 ? 4 : type == DType::kBF16 ? 2 : 1;
    const HeadMajor& h = p.branches[i].y.heads;
    const int64_t length = h.size == 0 ? p.m * p.branches[i].y.stride : (p.m + h.rows - 1) / h.rows * h.batch_stride;
    y.emplace_back(static_cast<size_t>(length) * size, 0xAB);
    args.out[i].y.y = y.back().data();
  }
  const int64_t blocks = Fp8Blocks(args);
  if (reference) {
    LinearFp8Reference(args, {0, p.m}, {0, blocks});
    return y;
  }
  AlignedArray<uint8_t> scratch(Fp8ScratchBytes(arch, p.k));
  const int64_t row = split ? RandomInt(0, static_cast<int>(p.m)) : p.m;
  const int64_t block = split ? RandomInt(0, static_cast<int>(blocks)) : blocks;
  for (const Range rows : {Range{0, row}, Range{row, p.m}}) {
    for (const Range part : {Range{0, block}, Range{block, blocks}}) LinearFp8(arch, args, rows, part, scratch.data());
  }
  return y;
}

// Floats that are NaN count as equal: which NaN an FPU makes is not in the contract.
void ExpectEqual(const Problem& p, Outputs got, Outputs want, const char* what) {
  for (size_t i = 0; i < p.branches.size(); ++i) {
    for (Outputs* y : {&got, &want}) {
      if (p.branches[i].y.dtype == DType::kF32) {
        auto* f = reinterpret_cast<float*>((*y)[i].data());
        for (size_t j = 0; j < (*y)[i].size() / 4; ++j) f[j] = std::isnan(f[j]) ? 0x1p100f : f[j];
      } else if (p.branches[i].y.dtype == DType::kBF16) {
        auto* f = reinterpret_cast<uint16_t*>((*y)[i].data());
        for (size_t j = 0; j < (*y)[i].size() / 2; ++j) f[j] = (f[j] & 0x7fff) > 0x7f80 ? 0x7fc0 : f[j];
      }
    }
    ASSERT_EQ(got[i], want[i]) << what << ": m " << p.m << " k " << p.k << " branch " << i << " n " << p.branches[i].n;
  }
}

double ResidualAt(const Branch& b, int64_t m, int64_t n) {
  return b.residual.empty() ? 0.0 : double{b.residual[static_cast<size_t>(m * b.y.residual_stride + n)]};
}

TEST(Fp8Reference, IsWithinTheBoundOfTheExactSum) {
  for (int round = 0; round < 60; ++round) {
    Problem p = RandomProblem(12, true);
    for (Branch& b : p.branches) {
      b.y.dtype = DType::kF32;
      b.y.activation = Activation::kNone;
      b.bias.clear();
      b.post.clear();
    }
    const Outputs y = Compute(p, Arch::kScalar, true, false);
    int64_t different = 0;
    for (size_t i = 0; i < p.branches.size(); ++i) {
      const Branch& b = p.branches[i];
      for (int64_t m = 0; m < p.m; ++m) {
        for (int64_t n = 0; n < b.n; ++n) {
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < p.k; ++k) {
            const double x = quant::Fp8ToF32(p.x_codes[static_cast<size_t>(m * p.x.stride + k)], p.x.dtype);
            const double product = x * quant::Fp8ToF32(b.codes[static_cast<size_t>(k * b.n + n)], b.w.dtype());
            sum += product;
            magnitude += std::fabs(product);
          }
          const double scale =
              static_cast<double>(p.x.scale) * b.scale[b.y.w_scale_per_column ? static_cast<size_t>(n) : 0];
          float got;
          std::memcpy(&got, y[i].data() + b.y.At(m, n) * 4, 4);
          const double residual = ResidualAt(b, m, n);
          // k - 1 roundings of sums, three of the scale, and one of the sum with the residual.
          const double bound = ((static_cast<double>(p.k) + 5) * magnitude * scale + std::fabs(residual)) * 0x1p-24;
          ASSERT_LE(std::fabs(got - (sum * scale + residual)), bound);
          different += sum != 0;
        }
      }
    }
    ASSERT_GT(different, 0);
  }
}

void ExpectRandomEqualsReference(Arch arch, bool bf16_pairs, std::initializer_list<int> most_rows, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Problem p = RandomProblem(OneOf(most_rows), RandomInt(0, 3) != 0);
    p.bf16_pairs = bf16_pairs;
    ExpectEqual(p, Compute(p, arch, false, round % 2 != 0), Compute(p, arch, true, false), "random");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void ExpectTailsEqualReference(Arch arch, bool bf16_pairs) {
  for (int64_t m = 1; m <= 14; ++m) {
    for (const int64_t n : {1, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129}) {
      Problem p = RandomProblem(1, true);
      p.bf16_pairs = bf16_pairs;
      p.m = m;
      p.k = OneOf({1, 2, 31, 127, 128, 129, 255, 257});
      p.x.stride = p.k;
      p.x_codes.assign(static_cast<size_t>(m * p.k), 0);
      for (uint8_t& c : p.x_codes) c = RandomCode(p.x.dtype, true);
      Branch b = RandomBranch(m, p.k, Activation::kNone);
      b.codes.clear();
      for (int64_t i = 0; i < p.k * n; ++i) b.codes.push_back(RandomCode(DType::kE4M3FN, true));
      b.w = *PackFp8({.data = b.codes.data(), .dtype = DType::kE4M3FN, .k = p.k, .n = n});
      b.n = b.y.stride = n;
      b.scale.assign(static_cast<size_t>(n), 0.01f);
      b.bias.clear();
      b.post.clear();
      if (!b.residual.empty()) AddResidual(m, b);
      p.branches.clear();
      p.branches.push_back(std::move(b));
      ExpectEqual(p, Compute(p, arch, false, false), Compute(p, arch, true, false), "tail");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

class Fp8Test : public ArchTest {};

TEST_P(Fp8Test, EqualsTheReference) { ExpectRandomEqualsReference(GetParam(), false, {8, 40, 250}, 150); }
TEST_P(Fp8Test, EqualsTheReferenceAtEveryTail) { ExpectTailsEqualReference(GetParam(), false); }

// vdpbf16ps, natively or through the trap, whose executions are counted.
class Fp8PairsTest : public ::testing::Test {
 protected:
  static constexpr Arch kArch = Arch::kAvx512Vnni;
  void SetUp() override {
    ASSERT_TRUE(Fp8InPairs(kArch, true));
    if (ExecutionOfPairs(kArch) == Execution::kNone) GTEST_SKIP() << Name(kArch) << ": not run on this CPU";
    if (ExecutionOfPairs(kArch) == Execution::kTrap) trap::Install();
    before_ = trap::Executed().vector;
  }
  void TearDown() override {
    EXPECT_EQ(trap::TakeProblem(), "");
    if (ExecutionOfPairs(kArch) == Execution::kTrap) {
      EXPECT_GT(trap::Executed().vector, before_);
    }
  }
  uint64_t before_ = 0;
};

TEST_F(Fp8PairsTest, EqualTheReference) { ExpectRandomEqualsReference(kArch, true, {4, 8, 70}, 40); }
TEST_F(Fp8PairsTest, EqualTheReferenceAtEveryTail) { ExpectTailsEqualReference(kArch, true); }

// Random sums are often exact; here each wrong order has another sum.
TEST_F(Fp8PairsTest, KeepTheOrderOfProducts) {
  Problem p = RandomProblem(1, true);
  p.bf16_pairs = true;
  p.x = {.data = nullptr, .dtype = DType::kE5M2, .stride = 8, .scale = 1.0f};
  p.m = 5, p.k = 8, p.x_codes.clear();
  // Products 1, 0, 2^24, 1, 1, 1, -2^24, 3, one after the other: 2^24 + 1 = 2^24, three times; the rest is 3. With pairs swapped
  // it is 8, with the products of a pair added to each other first 5.
  for (int m = 0; m < 5; ++m) p.x_codes.insert(p.x_codes.end(), {0x3c, 0x3c, 0x78, 0x3c, 0x3c, 0x3c, 0x78, 0x3c});
  Branch b = RandomBranch(5, 8, Activation::kNone);
  b.n = b.y.stride = 1, b.y.dtype = DType::kF32, b.scale = {1.0f}, b.bias.clear(), b.post.clear(), b.residual.clear();
  b.codes = {0x3c, 0x00, 0x60, 0x3c, 0x3c, 0x3c, 0xe0, 0x42};
  b.w = *PackFp8({.data = b.codes.data(), .dtype = DType::kE5M2, .k = 8, .n = 1});
  b.y.w_scale_per_column = false;
  p.branches.clear();
  p.branches.push_back(std::move(b));
  const Outputs got = Compute(p, kArch, false, false);
  ExpectEqual(p, got, Compute(p, kArch, true, false), "order");
  for (size_t m = 0; m < 5; ++m) {
    float y;
    std::memcpy(&y, got[0].data() + 4 * m, 4);
    EXPECT_EQ(y, 3.0f);
  }
}

// Every code, and floats at, beside and between all boundaries, through the kernels of quantize/.
TEST_P(Fp8Test, QuantizesAndDequantizesAsOnnx) {
  for (const DType t : {DType::kE4M3FN, DType::kE5M2}) {
    std::vector<uint8_t> codes(256);
    std::iota(codes.begin(), codes.end(), uint8_t{0});
    std::vector<float> values(256);
    DequantizeLinear(GetParam(), codes.data(), t, 256, 3.0f, 0, values.data());
    std::vector<float> x = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,      -NAN,
                            1e-45f, -3e38f, 464.0f,   465.0f,    61440.0f, 1e6f};
    for (int i = 0; i < 256; ++i) {
      const float v = quant::Fp8ToF32(static_cast<uint8_t>(i), t);
      const float want = v * 3.0f;
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(values[static_cast<size_t>(i)])) << i;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(values[static_cast<size_t>(i)]), std::bit_cast<uint32_t>(want))
          << Name(t) << " code " << i;
      if (!std::isfinite(v)) continue;
      const float next = quant::Fp8ToF32(static_cast<uint8_t>(i + 1), t);
      for (const float f : {v, (v + (std::isfinite(next) ? next : v)) / 2}) {
        for (const float g : {f, std::nextafter(f, 1e30f), std::nextafter(f, -1e30f)}) x.push_back(g);
      }
    }
    for (int i = 0; i < 20000; ++i) x.push_back(std::ldexp(RandomFloat(-1, 1), RandomInt(-30, 20)));
    for (const float scale : {1.0f, 0.0071f, 3.3f, 0x1p-60f, 0x1p-61f, 0x1p61f, -2.0f, RandomFloat(0.001f, 10)}) {
      std::vector<float> scaled = x;
      if (scale != 1.0f) {
        for (float& f : scaled) f *= scale;
      }
      std::vector<uint8_t> got(x.size());
      QuantizeLinear(GetParam(), scaled.data(), static_cast<int64_t>(x.size()), scale, 0, t, got.data());
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(int{got[i]}, int{quant::QuantizeFp8One(scaled[i], scale, t)})
            << Name(t) << ' ' << scaled[i] << " / " << scale;
      }
    }
  }
}

// AMX adds in another order: within twice the bound of the truth, and equal for every split.
TEST(Fp8Amx, IsWithinTheBoundAndEqualForEverySplit) {
  if (ExecutionOf(Arch::kAmx) == Execution::kNone) GTEST_SKIP() << Name(Arch::kAmx) << ": not run on this CPU";
  if (ExecutionOf(Arch::kAmx) == Execution::kTrap) trap::Install();
  const trap::Counts before = trap::Executed();
  for (int round = 0; round < 25; ++round) {
    Problem p = RandomProblem(OneOf({8, 20, 70}), true);
    p.branches.resize(std::min<size_t>(p.branches.size(), 2));
    for (Branch& b : p.branches) {
      b.y.dtype = DType::kF32;
      b.y.activation = Activation::kNone;
      b.bias.clear();
      b.post.clear();
    }
    const Outputs want = Compute(p, Arch::kScalar, true, false), got = Compute(p, Arch::kAmx, false, false);
    ASSERT_EQ(got, Compute(p, Arch::kAmx, false, true));
    for (size_t i = 0; i < p.branches.size(); ++i) {
      const Branch& b = p.branches[i];
      for (int64_t m = 0; m < p.m; ++m) {
        for (int64_t n = 0; n < b.n; ++n) {
          double magnitude = 0;
          for (int64_t k = 0; k < p.k; ++k) {
            const double x = quant::Fp8ToF32(p.x_codes[static_cast<size_t>(m * p.x.stride + k)], p.x.dtype);
            magnitude += std::fabs(x * quant::Fp8ToF32(b.codes[static_cast<size_t>(k * b.n + n)], b.w.dtype()));
          }
          const double scale =
              static_cast<double>(p.x.scale) * b.scale[b.y.w_scale_per_column ? static_cast<size_t>(n) : 0];
          float x, y;
          std::memcpy(&x, got[i].data() + b.y.At(m, n) * 4, 4);
          std::memcpy(&y, want[i].data() + b.y.At(m, n) * 4, 4);
          ASSERT_LE(std::fabs(x - y), 2 * (static_cast<double>(p.k) + 3) * 0x1p-24 * magnitude * scale +
                                          (b.residual.empty() ? 0.0 : 0x1p-24 * (std::fabs(x) + std::fabs(y))))
              << m << " " << n;
        }
      }
    }
  }
  EXPECT_EQ(trap::TakeProblem(), "");
  EXPECT_TRUE(trap::TilesReleased());
  if (ExecutionOf(Arch::kAmx) == Execution::kTrap) {
    EXPECT_GT(trap::Executed().tile, before.tile);
  }
}

TEST(PackFp8, RefusesWithASentence) {
  std::vector<uint8_t> codes(6, 0x10);
  EXPECT_EQ(PackFp8({.data = codes.data(), .dtype = DType::kS8, .k = 2, .n = 3}).error(),
            "the weights are s8, not fp8");
  EXPECT_EQ(PackFp8({.data = codes.data(), .dtype = DType::kE5M2, .k = 0, .n = 3}).error(),
            "the weights are an empty matrix, 0 x 3");
  codes[4] = 0xff;
  EXPECT_EQ(PackFp8({.data = codes.data(), .dtype = DType::kE4M3FN, .k = 2, .n = 3}).error(),
            "weight (1, 1) is not a number");
  EXPECT_TRUE(PackFp8({.data = codes.data(), .dtype = DType::kE5M2, .k = 2, .n = 3}).has_value());
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Test, ::testing::Values(Arch::kScalar, Arch::kAvx2, Arch::kAvx512, Arch::kAvx512Vnni),
                         ArchTestName);

}  // namespace
}  // namespace octavo::kernels
