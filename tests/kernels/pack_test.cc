// Weights packed by fours are those packed one by one.
#include <cstring>
#include <format>
#include <vector>

#include "gmock/gmock.h"
#include "octavo/kernels/gemm/gemm.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;
using ::testing::HasSubstr;

TEST(PackWeights, RefusesWhatLeavesS8InAnyRow) {
  const int64_t k = 43, n = 37;
  const int32_t zero_point = 100;
  for (const int64_t row : {0, 3, 5, 39, 40, 42}) {
    for (const int64_t column : {0, 15, 16, 31, 36}) {
      std::vector<uint8_t> w(k * n, 100);
      w[static_cast<size_t>(row * n + column)] = 229;
      const auto packed =
          PackWeights({.data = w.data(), .dtype = DType::kU8, .k = k, .n = n, .zero_point = &zero_point});
      ASSERT_FALSE(packed.has_value());
      EXPECT_THAT(packed.error(),
                  HasSubstr(std::format("weight [{}, {}] minus its zero point 100 is 129", row, column)));
    }
  }
}

TEST(PackWeights, IsTheSameByFoursAndOneByOne) {
  const int64_t k = 1027, n = 1000;
  std::vector<int8_t> w(static_cast<size_t>(k * n)), turned(w.size());
  for (int64_t i = 0; i < k * n; ++i) {
    w[static_cast<size_t>(i)] = static_cast<int8_t>(RandomInt(-128, 127));
    turned[static_cast<size_t>(i % n * k + i / n)] = w[static_cast<size_t>(i)];
  }
  const auto a = PackWeights({.data = w.data(), .k = k, .n = n});
  const auto b = PackWeights({.data = turned.data(), .k = k, .n = n, .transposed = true});
  ASSERT_TRUE(a && b);
  EXPECT_EQ(std::memcmp(a->data(), b->data(), static_cast<size_t>(a->k_padded() * a->n_padded())), 0);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(a->column_sums()[i], b->column_sums()[i]);
  for (int64_t i = 0; i < n / 16; ++i) EXPECT_EQ(a->SafeQuads(i), b->SafeQuads(i));
}

}  // namespace
}  // namespace octavo::kernels
