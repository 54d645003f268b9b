// Float products whose every sum is one chain of FMA in the order of k: a few rows over weights as they lie, and any number over panels.
#include <cmath>
#include <vector>

#include "octavo/kernels/gemm/few_rows_f32.h"
#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/kernels/gemm/in_order_f32.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

// A product, its truth, and an output of a pattern, so that writes outside are seen.
struct Product {
  int64_t m, k, n, x_stride, w_stride, y_stride;
  std::vector<float> x, w, bias, y, want;
  bool with_bias;

  // w_room: elements between rows of the weights.
  Product(int64_t rows, int64_t depth, int64_t columns, int64_t w_room, bool biased = RandomInt(0, 1) == 0)
      : m(rows),
        k(depth),
        n(columns),
        x_stride(k + RandomInt(0, 5)),
        w_stride(n + w_room),
        y_stride(n + RandomInt(0, 5)),
        x(static_cast<size_t>(m * x_stride)),
        w(static_cast<size_t>(k * w_stride)),
        bias(static_cast<size_t>(n)),
        y(static_cast<size_t>(m * y_stride), 77.0f),
        with_bias(biased) {
    for (auto* values : {&x, &w, &bias}) {
      for (float& v : *values) v = RandomFloat(-1, 1);
    }
    want = y;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = with_bias ? bias[static_cast<size_t>(j)] : 0.0f;
        for (int64_t l = 0; l < k; ++l) {
          sum = std::fma(x[static_cast<size_t>(i * x_stride + l)], w[static_cast<size_t>(l * w_stride + j)], sum);
        }
        want[static_cast<size_t>(i * y_stride + j)] = sum;
      }
    }
  }
  const float* Bias() const { return with_bias ? bias.data() : nullptr; }
};

class FloatOrder : public ArchTest {};
INSTANTIATE_TEST_SUITE_P(All, FloatOrder, ::testing::ValuesIn(VectorArchs()), ArchTestName);

TEST_P(FloatOrder, FewRowsAreChains) {
  for (int trial = 0; trial < 60; ++trial) {
    Product p(RandomInt(1, kFewRowsF32), RandomInt(1, 90), RandomInt(1, trial % 6 == 0 ? 1200 : 100), 0);
    kFewRowsOf[GetParam()]({.m = p.m,
                            .k = p.k,
                            .n = p.n,
                            .x = p.x.data(),
                            .x_stride = p.x_stride,
                            .w = p.w.data(),
                            .bias = p.Bias(),
                            .y = p.y.data(),
                            .y_stride = p.y_stride});
    ASSERT_EQ(p.y, p.want) << p.m << " x " << p.k << " x " << p.n;
  }
}

// Every rest of a tile's rows, behind none, one and two whole tiles, and of its columns.
TEST_P(FloatOrder, ManyRowsAreChains) {
  for (int64_t m = 1; m <= 2 * kInOrderRows + 1; ++m) {
    for (int64_t n = 1; n <= 2 * kInOrderPanelColumns + 1; ++n) {
      Product p(m, RandomInt(1, 40), n, RandomInt(0, 5));
      AlignedArray<float> panel(static_cast<size_t>(p.k * kInOrderPanelColumns));
      kInOrderOf[GetParam()]({.m = p.m,
                              .k = p.k,
                              .n = p.n,
                              .x = p.x.data(),
                              .x_stride = p.x_stride,
                              .w = p.w.data(),
                              .w_stride = p.w_stride,
                              .bias = p.Bias(),
                              .y = p.y.data(),
                              .y_stride = p.y_stride,
                              .panel = panel.data()});
      ASSERT_EQ(p.y, p.want) << p.m << " x " << p.k << " x " << p.n;
    }
  }
}

TEST(FloatMatMul, ProductsOfActivationsAreChainsWhereThatIsAsked) {
  if (kInOrderOf[BestArch()] == nullptr) GTEST_SKIP() << "no AVX2";
  for (int trial = 0; trial < 40; ++trial) {
    Product p(RandomInt(1, 40), RandomInt(1, 90), RandomInt(1, 90), RandomInt(0, 5), false);
    const MatMulF32Args args{.m = p.m,
                             .k = p.k,
                             .n = p.n,
                             .a = p.x.data(),
                             .a_row = p.x_stride,
                             .b = p.w.data(),
                             .b_row = p.w_stride,
                             .c = p.y.data(),
                             .c_row = p.y_stride,
                             .in_order = true};
    ASSERT_EQ(MatMulF32(args, {0, 1}), "");
    ASSERT_EQ(p.y, p.want) << p.m << " x " << p.k << " x " << p.n;
  }
}

TEST_P(FloatOrder, RowsAloneHaveTheBitsThatTheyHaveInAnyCompany) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t m = RandomInt(2, 70), k = RandomInt(1, 200), n = RandomInt(1, 90);
    std::vector<float> x(static_cast<size_t>(m * k)), w(static_cast<size_t>(k * n)), y(static_cast<size_t>(m * n)),
        alone = y;
    for (auto* values : {&x, &w}) {
      for (float& v : *values) v = RandomFloat(-1, 1);
    }
    const auto packed = PackWeightsF32(w.data(), k, n, false, 128);
    ASSERT_TRUE(packed.has_value());
    GemmF32Args args{.x = x.data(),
                     .x_stride = k,
                     .w = &*packed,
                     .y = y.data(),
                     .y_stride = n,
                     .arch = GetParam(),
                     .rows_alone = true};
    ASSERT_EQ(GemmF32(args, {0, m}), "");
    args.y = alone.data();
    for (int64_t row = 0; row < m; ++row) ASSERT_EQ(GemmF32(args, {row, row + 1}), "");
    ASSERT_EQ(y, alone) << m << " x " << k << " x " << n;
  }
}

}  // namespace
}  // namespace octavo::kernels
