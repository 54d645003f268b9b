// Float products over panels: every sum is one chain of FMA in the order of k, for any number of rows.
#include <cmath>
#include <vector>

#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/kernels/gemm/panels_f32.h"
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

// Of w in panels, and as it lies.
void ExpectChains(Arch arch, Product& p) {
  AlignedArray<float> panels(static_cast<size_t>(PanelsF32Size(p.k, p.n)));
  PackPanelsF32(p.w.data(), p.k, p.n, p.w_stride, 1, panels.data());
  const std::vector<float> before = p.y;
  for (const bool copied : {true, false}) {
    if (!copied && p.n % kPanelColumns != 0) continue;
    p.y = before;
    kPanelsF32Of[arch]({.m = p.m,
                        .k = p.k,
                        .n = p.n,
                        .x = p.x.data(),
                        .x_stride = p.x_stride,
                        .panels = copied ? panels.data() : nullptr,
                        .rows = p.w.data(),
                        .rows_stride = p.w_stride,
                        .bias = p.Bias(),
                        .y = p.y.data(),
                        .y_stride = p.y_stride});
    ASSERT_EQ(p.y, p.want) << p.m << " x " << p.k << " x " << p.n << (copied ? "" : " as it lies");
  }
}

// Every rest of a tile's rows, behind none, one and two whole tiles, and of the columns of several panels.
TEST_P(FloatOrder, RowsAreChains) {
  for (int64_t m = 1; m <= 2 * kPanelTileRows + 1; ++m) {
    for (int64_t n = 1; n <= 5 * kPanelColumns + 1;
         n += m > kPanelFewRows && n % kPanelColumns != kPanelColumns - 1 ? 3 : 1) {
      Product p(m, RandomInt(1, 40), n, RandomInt(0, 5));
      ExpectChains(GetParam(), p);
    }
  }
}

TEST(FloatMatMul, ProductsOfActivationsAreChains) {
  if (BestArch() == Arch::kScalar) GTEST_SKIP() << "no AVX2";
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
                             .c_row = p.y_stride};
    MatMulF32(args, {0, 1});
    ASSERT_EQ(p.y, p.want) << p.m << " x " << p.k << " x " << p.n;
  }
}

TEST(FloatRows, HaveTheBitsThatTheyHaveInAnyCompany) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t m = RandomInt(2, 70), k = RandomInt(1, 600), n = RandomInt(1, 90);
    const bool transposed = RandomInt(0, 1) == 1;
    std::vector<float> x(static_cast<size_t>(m * k)), w(static_cast<size_t>(k * n)), y(static_cast<size_t>(m * n)),
        alone = y;
    for (auto* values : {&x, &w}) {
      for (float& v : *values) v = RandomFloat(-1, 1);
    }
    const auto packed = PackWeightsF32(w.data(), k, n, transposed);
    ASSERT_TRUE(packed.has_value());
    GemmF32Args args{.x = x.data(), .x_stride = k, .w = &*packed, .y = y.data(), .y_stride = n};
    GemmF32(args, {0, m});
    args.y = alone.data();
    for (int64_t row = 0; row < m; ++row) GemmF32(args, {row, row + 1});
    ASSERT_EQ(y, alone) << m << " x " << k << " x " << n;
  }
}

}  // namespace
}  // namespace octavo::kernels
