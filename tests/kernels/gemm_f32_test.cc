// Float products against double, within (k + 2) * 2^-24 of the sum of the magnitudes.
#include "octavo/kernels/gemm/gemm_f32.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "testing.h"

namespace octavo::kernels {
namespace {

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& bias,
                const std::vector<float>& y, int64_t m, int64_t k, int64_t n, int64_t x_stride, int64_t y_stride) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double exact = bias.empty() ? 0.0 : bias[static_cast<size_t>(j)];
      double magnitude = std::abs(exact);
      for (int64_t l = 0; l < k; ++l) {
        const double term = double{a[static_cast<size_t>(i * x_stride + l)]} * b[static_cast<size_t>(l * n + j)];
        exact += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(y[static_cast<size_t>(i * y_stride + j)], exact, magnitude * (static_cast<double>(k) + 2) * 0x1p-24);
    }
  }
}

std::vector<float> RandomFloats(int64_t count) {
  std::vector<float> v(static_cast<size_t>(count));
  for (auto& x : v) x = RandomFloat(-1, 1);
  return v;
}

TEST(GemmF32, EqualsDoubleWithinTheBound) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t m = RandomInt(1, trial % 2 == 0 ? 5 : 70), k = RandomInt(1, 200), n = RandomInt(1, 150);
    const int64_t x_stride = k + RandomInt(0, 5), y_stride = n + RandomInt(0, 5);
    const std::vector<float> x = RandomFloats(m * x_stride), w = RandomFloats(k * n);
    const std::vector<float> bias = trial % 2 == 0 ? RandomFloats(n) : std::vector<float>();
    const bool transposed = trial % 3 == 0;
    const int64_t stride = (transposed ? k : n) + RandomInt(0, 3);  // columns of a wider matrix, too
    std::vector<float> given(static_cast<size_t>(stride * (transposed ? n : k)), 55.0f);
    for (int64_t i = 0; i < k * n; ++i) {
      const int64_t at = transposed ? i % n * stride + i / n : i / n * stride + i % n;
      given[static_cast<size_t>(at)] = w[static_cast<size_t>(i)];
    }
    auto packed = PackWeightsF32(given.data(), k, n, transposed, stride);
    ASSERT_TRUE(packed.has_value()) << packed.error();
    std::vector<float> y(static_cast<size_t>(m * y_stride), 77.0f);
    const int64_t split = RandomInt(0, static_cast<int>(m));
    const GemmF32Args args{x.data(), x_stride, &*packed, bias.empty() ? nullptr : bias.data(), y.data(), y_stride};
    GemmF32(args, {0, split});
    GemmF32(args, {split, m});
    ExpectNear(x, w, bias, y, m, k, n, x_stride, y_stride);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = n; j < y_stride; ++j) ASSERT_EQ(y[static_cast<size_t>(i * y_stride + j)], 77.0f);
    }
  }
}

TEST(GemmF32, OneColumnWithAStride) {
  for (int64_t m : {2, 6, 26, 69}) {
    const std::vector<float> x = RandomFloats(m * 121), w = RandomFloats(121), bias = RandomFloats(1);
    auto packed = PackWeightsF32(w.data(), 121, 1, false);
    ASSERT_TRUE(packed.has_value());
    std::vector<float> y(static_cast<size_t>(m * 5), 77.0f);
    GemmF32({x.data(), 121, &*packed, bias.data(), y.data(), 5}, {0, m});
    ExpectNear(x, w, bias, y, m, 121, 1, 121, 5);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_TRUE(i % 5 == 0 || y[i] == 77.0f) << i;
  }
}

TEST(MatMulF32, RandomShapesAndStrides) {
  for (int trial = 0; trial < 200; ++trial) {
    MatMulF32Args args;
    args.m = RandomInt(1, trial % 3 == 0 ? 2 : 40);
    args.k = RandomInt(1, trial % 5 == 0 ? 2 : 70);
    args.n = RandomInt(1, trial % 2 == 0 ? 2 : 40);
    if (trial % 20 == 19)
      args.k = RandomInt(500, 700), args.n = RandomInt(60, 200);  // more columns than are copied at once
    const int64_t count = RandomInt(1, 4);
    const bool a_transposed = RandomInt(0, 1) == 1, b_transposed = RandomInt(0, 1) == 1;
    const int64_t gap = RandomInt(0, 3);
    args.a_row = a_transposed ? 1 : args.k + gap;
    args.a_column = a_transposed ? args.m + gap : 1;
    args.a_batch = RandomInt(0, 3) == 0 ? 0 : (args.m + gap) * (args.k + gap);
    args.b_row = b_transposed ? 1 : args.n + gap;
    args.b_column = b_transposed ? args.k + gap : 1;
    args.b_batch = RandomInt(0, 3) == 0 ? 0 : (args.k + gap) * (args.n + gap);
    args.c_row = args.n + gap;
    args.c_batch = args.m * args.c_row + gap;
    const std::vector<float> a = RandomFloats((args.m + gap) * (args.k + gap) * count);
    const std::vector<float> b = RandomFloats((args.k + gap) * (args.n + gap) * count);
    std::vector<float> c(static_cast<size_t>(args.c_batch * count), 77.0f);
    args.a = a.data(), args.b = b.data(), args.c = c.data();
    MatMulF32(args, {0, count});
    size_t written = 0;
    for (int64_t h = 0; h < count; ++h) {
      for (int64_t i = 0; i < args.m; ++i) {
        for (int64_t j = 0; j < args.n; ++j) {
          double exact = 0.0;
          for (int64_t l = 0; l < args.k; ++l) {
            exact += double{a[static_cast<size_t>(h * args.a_batch + i * args.a_row + l * args.a_column)]} *
                     b[static_cast<size_t>(h * args.b_batch + l * args.b_row + j * args.b_column)];
          }
          const float got = c[static_cast<size_t>(h * args.c_batch + i * args.c_row + j)];
          ASSERT_NEAR(got, exact, static_cast<double>((args.k + 2) * args.k) * 0x1p-24)
              << args.m << " " << args.k << " " << args.n << " gap " << gap << " transposed " << a_transposed
              << b_transposed << " batches " << count << " strides " << args.a_batch << " " << args.b_batch;
          ++written;
        }
      }
    }
    ASSERT_EQ(static_cast<size_t>(std::ranges::count(c, 77.0f)), c.size() - written) << "writes between the rows";
  }
}

// Of depth 0 there is nothing to add.
TEST(MatMulF32, OfDepthZeroIsZero) {
  std::vector<float> c(6, 77.0f);
  MatMulF32Args args{.m = 2, .n = 3, .a = c.data(), .b = c.data(), .c = c.data(), .c_row = 3};
  MatMulF32(args, {0, 1});
  EXPECT_EQ(c, std::vector<float>(6));
}

// [B, S, H, D] operands, one call per batch entry, heads as the batch: q k^T with a transposed right operand.
TEST(MatMulF32, StridesOfAttention) {
  const int64_t heads = 3, s = 17, keys = 23, d = 32;
  const std::vector<float> q = RandomFloats(s * heads * d), k = RandomFloats(keys * heads * d);
  std::vector<float> scores(static_cast<size_t>(heads * s * keys));
  MatMulF32Args args;
  args.m = s, args.k = d, args.n = keys;
  args.a = q.data(), args.a_row = heads * d, args.a_batch = d;
  args.b = k.data(), args.b_row = 1, args.b_column = heads * d, args.b_batch = d;
  args.c = scores.data(), args.c_row = keys, args.c_batch = s * keys;
  MatMulF32(args, {0, 2});
  MatMulF32(args, {2, 3});
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < s; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        double exact = 0.0;
        for (int64_t l = 0; l < d; ++l) {
          exact +=
              double{q[static_cast<size_t>((i * heads + h) * d + l)]} * k[static_cast<size_t>((j * heads + h) * d + l)];
        }
        ASSERT_NEAR(scores[static_cast<size_t>((h * s + i) * keys + j)], exact, 34 * 32 * 0x1p-24);
      }
    }
  }
}

TEST(MatMulF32, BroadcastBatch) {
  const std::vector<float> a = RandomFloats(4 * 5 * 6), b = RandomFloats(6 * 7);
  std::vector<float> c(4 * 5 * 7);
  MatMulF32Args args;
  args.m = 5, args.k = 6, args.n = 7;
  args.a = a.data(), args.a_row = 6, args.a_batch = 30;
  args.b = b.data(), args.b_row = 7;
  args.c = c.data(), args.c_row = 7, args.c_batch = 35;
  MatMulF32(args, {0, 4});
  ExpectNear(a, b, {}, c, 20, 6, 7, 6, 7);
}

}  // namespace
}  // namespace octavo::kernels
