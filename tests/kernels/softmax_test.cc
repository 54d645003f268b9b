#include "octavo/kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "octavo/quant/numeric/math.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

// The same bits; NaN equals NaN whatever its payload.
bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class SoftmaxTest : public testing::TestWithParam<Arch> {};

TEST_P(SoftmaxTest, EqualsTheTruthForEveryLength) {
  for (int64_t n = 1; n <= 150; n += n < 70 ? 1 : 13) {
    const auto seed = static_cast<uint32_t>(1000 + n);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", n " + std::to_string(n));
    std::mt19937 gen(seed);
    constexpr int64_t kRows = 9;
    const int64_t x_stride = n + 3, y_stride = n + 5;
    std::vector<float> x(kRows * x_stride, kNan), y(kRows * y_stride, -7.0f), want(n);
    for (int64_t r = 0; r < kRows; ++r) {
      std::normal_distribution<float> normal(0.0f, r == 1 ? 60.0f : 3.0f);
      for (int64_t i = 0; i < n; ++i) x[r * x_stride + i] = normal(gen);
      const auto at = static_cast<int64_t>(gen() % n);
      if (r == 2) x[r * x_stride + at] = kNan;
      if (r == 3) x[r * x_stride + at] = kInf;
      for (int64_t i = 0; i < n; ++i) {
        if (r == 4) x[r * x_stride + i] = -kInf;
        if (r == 5) x[r * x_stride + i] = i % 3 == at % 3 ? 0.25f * float(i) : -kInf;
        if (r == 6) x[r * x_stride + i] = -3.4028235e38f;
        if (r == 7 && i % 2 == 0) x[r * x_stride + i] += -3.4028235e38f;
        if (r == 8) x[r * x_stride + i] = -float(i);
      }
    }
    SoftmaxRows(GetParam(), x.data(), x_stride, y.data(), y_stride, kRows, n);
    for (int64_t r = 0; r < kRows; ++r) {
      quant::SoftmaxRow(&x[r * x_stride], n, want.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_TRUE(Same(y[r * y_stride + i], want[i]))
            << r << " " << i << ": " << y[r * y_stride + i] << " " << want[i];
      }
      for (int64_t i = n; i < y_stride; ++i) ASSERT_EQ(y[r * y_stride + i], -7.0f) << "written beyond the row";
    }
    // In place.
    SoftmaxRows(GetParam(), x.data(), x_stride, x.data(), x_stride, kRows, n);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(Same(x[r * x_stride + i], y[r * y_stride + i]));
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SoftmaxTest, testing::ValuesIn(SupportedArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
