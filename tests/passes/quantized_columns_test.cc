// What `quantize` makes of weights: every column has a scale of its own, which uses all codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "maker.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

TEST(QuantizedColumns, EachHasItsScale) {
  Maker m(2);
  constexpr int64_t k = 30, n = 9;
  Tensor w = Tensor::Empty(DType::kF32, {k, n});
  for (int64_t i = 0; i < k * n; ++i) {
    const float size = std::ldexp(1.0f, static_cast<int>(i % n));
    w.mutable_as<float>()[static_cast<size_t>(i)] = size * std::uniform_real_distribution<float>(-1, 1)(m.rng);
  }
  const auto columns = QuantizeColumns(w);
  ASSERT_TRUE(columns.has_value());
  for (int64_t c = 0; c < n; ++c) {
    int64_t most = 0;
    for (int64_t r = 0; r < k; ++r) {
      const int64_t code = columns->codes.GetInt(r * n + c);
      const double scale = columns->scale.GetDouble(c);
      most = std::max(most, std::abs(code));
      EXPECT_LE(std::fabs(static_cast<double>(code) * scale - w.GetDouble(r * n + c)), scale * 0.5001);
    }
    EXPECT_EQ(most, 127) << "column " << c;
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
