#include "octavo/kernels/blocked/blocked.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

// Weights as plain integers, and as a model holds them.
struct Problem {
  int64_t m = 0, k = 0, n = 0, block = 0;
  DType dtype = DType::kU4;
  bool transposed = false, has_zeros = false, has_bias = false;
  std::vector<int> q, z;  // [k][n], [blocks][n]
  std::vector<float> scale, x, bias;
  std::vector<uint8_t> data, zero_data;
  std::vector<float> scale_data;

  int64_t blocks() const { return (k + block - 1) / block; }
};

int Lowest(DType t) { return t == DType::kS4 ? -8 : t == DType::kS8 ? -128 : 0; }
int Highest(DType t) { return Lowest(t) + (quant::IsInt8(t) ? 255 : 15); }

std::vector<uint8_t> Pack(const std::vector<int>& values, int64_t rows, int64_t cols, DType t, bool transposed) {
  std::vector<uint8_t> out(values.size() + 1);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int v = values[static_cast<size_t>(r * cols + c)];
      const auto at = static_cast<size_t>(transposed ? c * rows + r : r * cols + c);
      if (quant::IsInt8(t)) {
        out[at] = static_cast<uint8_t>(v);
      } else {
        out[at / 2] |= static_cast<uint8_t>((v & 15) << (at % 2 * 4));
      }
    }
  }
  return out;
}

Problem RandomProblem(int64_t most_rows) {
  Problem p;
  p.m = RandomInt(1, static_cast<int>(most_rows));
  p.k = RandomInt(1, 300);
  p.n = RandomInt(1, 200);
  p.block = int64_t{16} * RandomInt(1, 8);
  p.dtype = std::vector{DType::kU4, DType::kS4, DType::kU8, DType::kS8}[static_cast<size_t>(RandomInt(0, 3))];
  p.transposed = RandomInt(0, 1) != 0;
  p.has_zeros = RandomInt(0, 1) != 0;
  p.has_bias = RandomInt(0, 1) != 0;
  const auto fill = [](std::vector<float>& v, int64_t count, float lo, float hi) {
    for (int64_t i = 0; i < count; ++i) v.push_back(RandomFloat(lo, hi));
  };
  for (int64_t i = 0; i < p.k * p.n; ++i) p.q.push_back(RandomInt(Lowest(p.dtype), Highest(p.dtype)));
  for (int64_t i = 0; i < p.blocks() * p.n; ++i) {
    p.z.push_back(p.has_zeros ? RandomInt(Lowest(p.dtype), Highest(p.dtype)) : 0);
  }
  fill(p.scale, p.blocks() * p.n, 0.001f, 0.1f);
  fill(p.x, p.m * (p.k + 3), -2, 2);
  fill(p.bias, p.n, -1, 1);
  p.data = Pack(p.q, p.k, p.n, p.dtype, p.transposed);
  p.zero_data = Pack(p.z, p.blocks(), p.n, p.dtype, p.transposed);
  p.scale_data = p.scale;
  if (p.transposed) {
    for (int64_t b = 0; b < p.blocks(); ++b) {
      for (int64_t n = 0; n < p.n; ++n) {
        p.scale_data[static_cast<size_t>(n * p.blocks() + b)] = p.scale[static_cast<size_t>(b * p.n + n)];
      }
    }
  }
  return p;
}

PackedBlocked Packed(const Problem& p) {
  auto packed = PackBlocked({.data = p.data.data(),
                             .dtype = p.dtype,
                             .k = p.k,
                             .n = p.n,
                             .block = p.block,
                             .transposed = p.transposed,
                             .scale = p.scale_data.data(),
                             .zero_point = p.has_zeros ? p.zero_data.data() : nullptr});
  EXPECT_TRUE(packed.has_value()) << (packed ? "" : packed.error());
  return std::move(*packed);
}

BlockedArgs ArgsOf(const Problem& p, const PackedBlocked& w, std::vector<float>& y) {
  y.assign(static_cast<size_t>(p.m * (p.n + 5)), 77.0f);
  return {.x = p.x.data(),
          .x_stride = p.k + 3,
          .w = &w,
          .bias = p.has_bias ? p.bias.data() : nullptr,
          .y = y.data(),
          .y_stride = p.n + 5};
}

// GemmBlockedInt8 of what `args` has, any split of rows and columns.
void RunOfCodes(Arch arch, const BlockedArgs& args, int64_t m) {
  AlignedArray<uint8_t> x(static_cast<size_t>(m * BlockedRowBytes(*args.w)));
  const auto row = RandomInt(0, static_cast<int>(m));
  QuantizeBlocks(arch, *args.w, args.x, args.x_stride, row, x.data());
  QuantizeBlocks(arch, *args.w, args.x + row * args.x_stride, args.x_stride, m - row,
                 x.data() + row * BlockedRowBytes(*args.w));
  AlignedArray<uint8_t> scratch(kBlockedInt8ScratchBytes);
  const BlockedInt8Args codes{.x = x.data(),
                              .w = args.w,
                              .bias = args.bias,
                              .y = args.y,
                              .y_stride = args.y_stride,
                              .tuning = {.one_stream = RandomInt(0, 1) != 0, .asks_near = RandomInt(0, 1) != 0}};
  const int64_t all = ColumnBlocks(args.w->n()), block = RandomInt(0, static_cast<int>(all));
  for (const Range rows : {Range{0, row}, Range{row, m}}) {
    GemmBlockedInt8(arch, codes, rows, {block, all}, scratch.data());
    GemmBlockedInt8(arch, codes, rows, {0, block}, scratch.data());
  }
}

TEST(Blocked, ReferenceIsWithinItsBoundOfDouble) {
  for (int trial = 0; trial < 60; ++trial) {
    const Problem p = RandomProblem(4);
    const PackedBlocked w = Packed(p);
    std::vector<float> y;
    const BlockedArgs args = ArgsOf(p, w, y);
    GemmBlockedReference(args, {0, p.m}, {0, ColumnBlocks(p.n)});
    for (int64_t m = 0; m < p.m; ++m) {
      for (int64_t n = 0; n < p.n; ++n) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          const auto parameter = static_cast<size_t>(k / p.block * p.n + n);
          const double weight = (p.q[static_cast<size_t>(k * p.n + n)] - p.z[parameter]) * double{p.scale[parameter]};
          const double term = weight * double{p.x[static_cast<size_t>(m * (p.k + 3) + k)]};
          want += term;
          size += std::fabs(term);
        }
        if (p.has_bias) want += double{p.bias[static_cast<size_t>(n)]};
        size += std::fabs(want);
        // One rounding a k of a block, one a block, one of the bias, each relative to what is summed so far.
        const double bound = (static_cast<double>(p.block + p.blocks()) + 2) * 0x1p-24 * size * 1.01;
        ASSERT_NEAR(want, double{y[static_cast<size_t>(m * (p.n + 5) + n)]}, bound) << "trial " << trial;
      }
    }
  }
}

// Rows as codes: against sums in integers and double, and what that is off from the product of the floats themselves.
TEST(BlockedInt8, ReferenceIsWithinItsBoundOfDouble) {
  for (int trial = 0; trial < 60; ++trial) {
    const Problem p = RandomProblem(4);
    const PackedBlocked w = Packed(p);
    std::vector<float> y;
    const BlockedArgs args = ArgsOf(p, w, y);
    RunOfCodes(Arch::kScalar, args, p.m);
    for (int64_t m = 0; m < p.m; ++m) {
      for (int64_t n = 0; n < p.n; ++n) {
        double want = 0, size = 0, of_floats = 0, half_steps = 0;
        for (int64_t b = 0; b < p.blocks(); ++b) {
          const auto parameter = static_cast<size_t>(b * p.n + n);
          const float* x = p.x.data() + m * (p.k + 3) + b * p.block;
          const int64_t length = std::min(p.block, p.k - b * p.block);
          float top = 0;
          for (int64_t i = 0; i < length; ++i) top = std::max(top, std::fabs(x[i]));
          const float step = std::max(top / 127.0f, 0x1p-100f);
          int64_t sum = 0;
          for (int64_t i = 0; i < length; ++i) {
            const int weight = p.q[static_cast<size_t>((b * p.block + i) * p.n + n)] - p.z[parameter];
            sum += static_cast<int64_t>(std::nearbyint(x[i] / step)) * weight;
            of_floats += double{x[i]} * weight * double{p.scale[parameter]};
            half_steps += 0.5 * double{step} * std::abs(weight) * double{p.scale[parameter]};
          }
          want += static_cast<double>(sum) * double{p.scale[parameter]} * double{step};
          size += std::fabs(static_cast<double>(sum) * double{p.scale[parameter]} * double{step});
        }
        const double bias = p.has_bias ? double{p.bias[static_cast<size_t>(n)]} : 0;
        const double got = double{y[static_cast<size_t>(m * (p.n + 5) + n)]};
        // A rounding of each product of scales, one a block of the chain, one of the bias.
        const double bound = (static_cast<double>(p.blocks()) + 3) * 0x1p-24 * (size + std::fabs(want + bias)) * 1.01;
        ASSERT_NEAR(want + bias, got, bound) << "trial " << trial;
        ASSERT_NEAR(of_floats + bias, got, half_steps * 1.001 + bound) << "trial " << trial;
      }
    }
  }
}

class BlockedArch : public ArchTest {};

TEST_P(BlockedArch, CodesHaveTheBitsOfTheReference) {
  const bool trap = ExecutionOf(GetParam()) == Execution::kTrap;  // thousands of cycles an instruction
  for (int trial = 0; trial < (trap ? 50 : 200); ++trial) {
    Problem p = RandomProblem(trial % (trap ? 48 : 4) == 0 ? 110 : 9);
    if (trial % 5 == 0) {  // the ends of the ranges: what does not fit saturates or overflows here
      for (size_t i = 0; i < p.x.size(); ++i) p.x[i] = i / 8 % 3 == 2 ? -1.0f : 1.0f;
      const bool high = RandomInt(0, 1) != 0;
      p.q.assign(p.q.size(), high ? Highest(p.dtype) : Lowest(p.dtype));
      p.data = Pack(p.q, p.k, p.n, p.dtype, p.transposed);
    }
    if (trial % 7 == 0)
      p.x[static_cast<size_t>(RandomInt(0, static_cast<int>(p.k) - 1))] = trial % 2 != 0 ? INFINITY : NAN;
    if (trial % 7 == 1) p.x.assign(p.x.size(), trial % 2 != 0 ? 1e-38f : -3e38f);
    const PackedBlocked w = Packed(p);
    std::vector<float> want, got;
    BlockedArgs args = ArgsOf(p, w, want);
    RunOfCodes(Arch::kScalar, args, p.m);
    args = ArgsOf(p, w, got);
    RunOfCodes(GetParam(), args, p.m);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                      : std::bit_cast<uint32_t>(want[i]) == std::bit_cast<uint32_t>(got[i]))
          << want[i] << " " << got[i] << " at " << i << " in trial " << trial << ": " << p.m << " x " << p.k << " x "
          << p.n << " " << Name(p.dtype) << " block " << p.block << " zeros " << p.has_zeros << " transposed "
          << p.transposed;
    }
    ASSERT_NE(want, std::vector<float>(want.size(), 77.0f));
  }
}

// 512 times 255 times 127 is the largest sum of a block.
TEST_P(BlockedArch, TheLargestBlockOfCodesIsExact) {
  Problem p = RandomProblem(1);
  p.m = 5, p.k = p.block = kMaxBlockOfCodes, p.n = 33;
  p.dtype = DType::kU8, p.transposed = p.has_bias = false, p.has_zeros = true;
  p.q.assign(static_cast<size_t>(p.k * p.n), 255);
  p.z.assign(static_cast<size_t>(p.n), 0);
  p.data = Pack(p.q, p.k, p.n, p.dtype, false), p.zero_data = Pack(p.z, 1, p.n, p.dtype, false);
  p.scale_data.assign(static_cast<size_t>(p.n), 1.0f);
  p.x.assign(static_cast<size_t>(p.m * (p.k + 3)), 127.0f);
  const PackedBlocked w = Packed(p);
  std::vector<float> y;
  RunOfCodes(GetParam(), ArgsOf(p, w, y), p.m);
  EXPECT_EQ(y[0], 512.0f * 255 * 127);
}

TEST_P(BlockedArch, HasTheBitsOfTheReference) {
  for (int trial = 0; trial < 160; ++trial) {
    const Problem p = RandomProblem(trial % 4 == 0 ? 110 : 9);
    const PackedBlocked w = Packed(p);
    std::vector<float> want, got;
    BlockedArgs args = ArgsOf(p, w, want);
    GemmBlockedReference(args, {0, p.m}, {0, ColumnBlocks(p.n)});
    args = ArgsOf(p, w, got);
    AlignedArray<uint8_t> scratch(BlockedScratchBytes(GetParam(), w));
    // Any split of rows and columns.
    const int64_t row = RandomInt(0, static_cast<int>(p.m)), block = RandomInt(0, static_cast<int>(ColumnBlocks(p.n)));
    for (const Range rows : {Range{0, row}, Range{row, p.m}}) {
      GemmBlocked(GetParam(), args, rows, {block, ColumnBlocks(p.n)}, scratch.data());
      GemmBlocked(GetParam(), args, rows, {0, block}, scratch.data());
    }
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
        << "trial " << trial << ": " << p.m << " x " << p.k << " x " << p.n << " " << Name(p.dtype) << " block "
        << p.block << " zeros " << p.has_zeros << " transposed " << p.transposed;
    ASSERT_NE(want, std::vector<float>(want.size(), 77.0f));
  }
}

TEST_P(BlockedArch, InfinitiesAndNaNStayInTheirRow) {
  Problem p = RandomProblem(1);
  p.m = 3;
  p.x.assign(static_cast<size_t>(3 * (p.k + 3)), 1.0f);
  p.x[0] = INFINITY;
  p.x[static_cast<size_t>(p.k + 3)] = NAN;
  const PackedBlocked w = Packed(p);
  std::vector<float> want, got;
  BlockedArgs args = ArgsOf(p, w, want);
  GemmBlockedReference(args, {0, 3}, {0, ColumnBlocks(p.n)});
  args = ArgsOf(p, w, got);
  AlignedArray<uint8_t> scratch(BlockedScratchBytes(GetParam(), w));
  GemmBlocked(GetParam(), args, {0, 3}, {0, ColumnBlocks(p.n)}, scratch.data());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(std::isnan(want[i]), std::isnan(got[i])) << i;
    if (!std::isnan(want[i])) {
      ASSERT_EQ(want[i], got[i]) << i;
    }
  }
  EXPECT_TRUE(std::isfinite(got[static_cast<size_t>(2 * (p.n + 5))]));
}

std::vector<Arch> AllForms() {
  std::vector<Arch> archs = VectorArchs();
  archs.insert(archs.begin(), Arch::kScalar);
  return archs;
}
INSTANTIATE_TEST_SUITE_P(All, BlockedArch, ::testing::ValuesIn(AllForms()), ArchTestName);

TEST(Blocked, PackingKeepsEachCode) {
  for (int trial = 0; trial < 80; ++trial) {
    const Problem p = RandomProblem(1);
    const PackedBlocked w = Packed(p);
    const int up = -Lowest(p.dtype);
    for (int64_t k = 0; k < p.k; ++k) {
      const int64_t b = k / p.block;
      for (int64_t n = 0; n < p.n; ++n) {
        const auto parameter = static_cast<size_t>(b * p.n + n);
        ASSERT_EQ(w.Code(b, k % p.block, n), p.q[static_cast<size_t>(k * p.n + n)] + up)
            << trial << " " << k << " " << n;
        ASSERT_EQ(w.Zero(b, n), p.z[parameter] + up) << trial;
        ASSERT_EQ(w.Scale(b, n), p.scale[parameter]) << trial;
      }
    }
  }
}

TEST(Blocked, RefusesWithASentence) {
  const float scale = 1;
  const uint8_t data[64] = {};
  BlockedSource s{.data = data, .dtype = DType::kU4, .k = 8, .n = 1, .block = 24, .scale = &scale};
  ASSERT_FALSE(PackBlocked(s));
  EXPECT_EQ(PackBlocked(s).error(), "blocks of 24; the kernels take multiples of 16 up to 1024");
  s.block = 16;
  s.dtype = DType::kF32;
  ASSERT_FALSE(PackBlocked(s));
  EXPECT_NE(PackBlocked(s).error().find("4- and 8-bit integers"), std::string::npos);
  s.dtype = DType::kU4;
  s.n = 0;
  ASSERT_FALSE(PackBlocked(s));
  EXPECT_NE(PackBlocked(s).error().find("empty"), std::string::npos);
}

TEST(Blocked, ReadsHalfAByteAWeight) {
  const std::vector<float> scale(64, 1.0f);
  const std::vector<uint8_t> data(16 * 64 * 32, 0);
  const auto four =
      PackBlocked({.data = data.data(), .dtype = DType::kS4, .k = 64, .n = 32, .block = 32, .scale = scale.data()});
  const auto eight =
      PackBlocked({.data = data.data(), .dtype = DType::kS8, .k = 64, .n = 32, .block = 32, .scale = scale.data()});
  ASSERT_TRUE(four && eight);
  EXPECT_EQ(four->bytes(), 64u * 32 / 2 + 64 * 4);
  EXPECT_EQ(eight->bytes(), 64u * 32 + 64 * 4);
}

}  // namespace
}  // namespace octavo::kernels
