#include "octavo/kernels/quantize/quantize.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "octavo/quant/numeric/rounding.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<uint8_t> Quantize(Arch arch, const std::vector<float>& x, float scale, int32_t zero_point, DType dtype) {
  std::vector<uint8_t> y(x.size() + 8, 0xA5);
  QuantizeLinear(arch, x.data(), static_cast<int64_t>(x.size()), scale, zero_point, dtype, y.data());
  return y;
}

// Values around every border between two integers, and what has no integer.
std::vector<float> Borders(float scale, int32_t zero_point) {
  std::vector<float> x = {0.0f, -0.0f, kInf, -kInf, kNan, -kNan, 1e38f, -1e38f, 1e-45f, -1e-45f};
  for (int i = -260; i <= 260; ++i) {
    const float border = (static_cast<float>(i) + 0.5f) * scale;
    for (float v : {border, std::nextafter(border, kInf), std::nextafter(border, -kInf),
                    static_cast<float>(i - zero_point) * scale}) {
      x.push_back(v);
    }
  }
  return x;
}

TEST(QuantizeReference, EqualsExactRounding) {
  // In double, x / scale of two floats is a tie only if it is one exactly: round it by hand, half to even.
  for (int trial = 0; trial < 20; ++trial) {
    const float scale = std::ldexp(RandomFloat(1, 2), RandomInt(-10, 4));
    const int32_t zero_point = RandomInt(0, 255);
    std::vector<float> x;
    for (int i = 0; i < 2000; ++i) x.push_back(RandomFloat(-300, 300) * scale);
    const std::vector<uint8_t> y = Quantize(Arch::kScalar, x, scale, zero_point, DType::kU8);
    int inner = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double quotient = double{x[i]} / scale;
      if (std::abs(quotient - std::floor(quotient) - 0.5) < 1e-4) continue;  // the float quotient may round to the tie
      const double want = std::clamp(std::floor(quotient + 0.5) + zero_point, 0.0, 255.0);
      ASSERT_EQ(y[i], want) << x[i] << " / " << scale << " + " << zero_point;
      inner += want > 0 && want < 255 ? 1 : 0;
    }
    EXPECT_GT(inner, 500);
  }
}

TEST(QuantizeReference, KnownValues) {
  const std::vector<float> x = {0.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 1000.0f, -1000.0f, kInf, -kInf, kNan};
  const std::vector<uint8_t> y = Quantize(Arch::kScalar, x, 1.0f, 10, DType::kU8);
  EXPECT_EQ(std::vector<uint8_t>(y.begin(), y.begin() + 11),
            (std::vector<uint8_t>{10, 10, 12, 12, 10, 8, 255, 0, 255, 0, 0}));
}

class QuantizeArch : public ArchTest {
 protected:
  void Compare(const std::vector<float>& x, float scale, int32_t zero_point, DType dtype) {
    ASSERT_TRUE(Quantize(Arch::kScalar, x, scale, zero_point, dtype) ==
                Quantize(GetParam(), x, scale, zero_point, dtype))
        << x.size() << " elements, scale " << scale << " zero point " << zero_point << " " << quant::Name(dtype);
  }
};

TEST_P(QuantizeArch, EveryTailAndAlignment) {
  for (int n = 0; n <= 300; ++n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (auto& v : x) v = RandomFloat(-20, 20);
    Compare(x, 0.1f, 7, n % 2 == 0 ? DType::kU8 : DType::kS8);
  }
}

TEST_P(QuantizeArch, Borders) {
  for (float scale : {0.1f, 0.007812500f, 1.0f, 3.3333333f, 0x1p-90f, 0x1p90f, 0x1.fffffep-3f, 0x1.000002p5f}) {
    for (int32_t zero_point : {0, 1, 77, 127}) {
      Compare(Borders(scale, zero_point), scale, zero_point, DType::kU8);
      Compare(Borders(scale, zero_point), scale, zero_point, DType::kS8);
      Compare(Borders(scale, -zero_point), scale, -zero_point, DType::kS8);
      Compare(Borders(scale, zero_point + 128), scale, zero_point + 128, DType::kU8);
    }
  }
}

TEST_P(QuantizeArch, StrangeScales) {
  for (float scale : {0.0f, -0.0f, -0.3f, 0x1p-149f, 0x1p-126f, 0x1p-101f, 0x1p-100f, 0x1p100f, 0x1p101f, 0x1p127f,
                      kInf, -kInf, kNan}) {
    Compare(Borders(std::isfinite(scale) && scale != 0.0f ? scale : 1.0f, 3), scale, 3, DType::kU8);
    Compare(Borders(1.0f, -3), scale, -3, DType::kS8);
  }
}

// The reciprocal form must be the division: every mantissa of x for some scales, at the exponents where integers live.
TEST_P(QuantizeArch, EveryMantissa) {
  std::vector<float> x(1 << 20);
  for (int trial = 0; trial < 4; ++trial) {
    const float scale = trial == 0 ? 0x1.fffffep0f : RandomFloat(1, 2);
    for (uint32_t base = 0; base < (1u << 23); base += 1u << 20) {
      const uint32_t exponent = static_cast<uint32_t>(RandomInt(126, 134)) << 23;
      for (uint32_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(exponent | (base + i));
      Compare(x, scale, 0, DType::kU8);
    }
  }
}

TEST_P(QuantizeArch, DequantizeEqualsReferenceAndTruth) {
  for (int n = 0; n <= 200; ++n) {
    std::vector<uint8_t> q(static_cast<size_t>(n));
    for (auto& v : q) v = static_cast<uint8_t>(RandomInt(0, 255));
    for (DType dtype : {DType::kU8, DType::kS8}) {
      const float scale = RandomFloat(0.001f, 1.0f);
      const int32_t zero_point = RandomInt(0, 127);
      std::vector<float> y(q.size() + 4, 77.0f);
      DequantizeLinear(GetParam(), q.data(), dtype, n, scale, zero_point, y.data());
      for (size_t i = 0; i < q.size(); ++i) {
        const int value = dtype == DType::kU8 ? q[i] : static_cast<int8_t>(q[i]);
        const float want = static_cast<float>(double{scale} * (value - zero_point));  // one rounding: exact product
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i] + 0.0f), std::bit_cast<uint32_t>(want + 0.0f));
      }
      for (size_t i = q.size(); i < y.size(); ++i) ASSERT_EQ(y[i], 77.0f);
    }
  }
}

TEST_P(QuantizeArch, MinMax) {
  for (int n = 1; n <= 150; ++n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (auto& v : x) v = RandomFloat(-50, 50);
    MinMax want{*std::ranges::min_element(x), *std::ranges::max_element(x), false};
    MinMax got = FindMinMax(GetParam(), x.data(), n);
    EXPECT_EQ(got.min, want.min);
    EXPECT_EQ(got.max, want.max);
    EXPECT_FALSE(got.has_nan);
    // A NaN anywhere is reported and hides no other element.
    const auto at = static_cast<size_t>(RandomInt(0, n - 1));
    std::vector<float> rest = x;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at));
    x[at] = kNan;
    got = FindMinMax(GetParam(), x.data(), n);
    EXPECT_TRUE(got.has_nan);
    EXPECT_EQ(got.min, rest.empty() ? kInf : *std::ranges::min_element(rest));
    EXPECT_EQ(got.max, rest.empty() ? -kInf : *std::ranges::max_element(rest));
  }
  const MinMax none = FindMinMax(GetParam(), nullptr, 0);
  EXPECT_EQ(none.min, kInf);
  EXPECT_EQ(none.max, -kInf);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeArch, ::testing::ValuesIn(VectorArchs()), ArchTestName);

}  // namespace
}  // namespace octavo::kernels
