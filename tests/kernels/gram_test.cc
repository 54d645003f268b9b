#include "octavo/kernels/gemm/gram.h"

#include <gtest/gtest.h>

#include <vector>

#include "octavo/kernels/gemm/gram_ref.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kPanel = kGramColumns;

std::vector<int16_t> Codes(int64_t pairs, int largest) {
  std::vector<int16_t> codes(static_cast<size_t>(pairs * kPanel * 2));
  for (int16_t& c : codes) c = static_cast<int16_t>(RandomInt(-largest, largest));
  return codes;
}

// The sums as the contract has them, not through the scalar kernel.
std::vector<int32_t> Truth(int64_t pairs, const std::vector<int16_t>& a, const std::vector<int16_t>& b) {
  std::vector<int32_t> c;
  for (int64_t i = 0; i < kPanel; ++i) {
    for (int64_t j = 0; j < kPanel; ++j) {
      int64_t sum = 0;
      for (int64_t row = 0; row < 2 * pairs; ++row) {
        const auto at = [row](const std::vector<int16_t>& codes, int64_t column) {
          return int64_t{codes[static_cast<size_t>((row / 2 * kPanel + column) * 2 + row % 2)]};
        };
        sum += at(a, i) * at(b, j);
      }
      c.push_back(static_cast<int32_t>(sum));
    }
  }
  return c;
}

class GramArch : public ArchTest {};

TEST_P(GramArch, IsExact) {
  for (const int64_t pairs : {0, 1, 2, 7, 128, 129}) {
    for (const int largest : {1, 100, 2047}) {
      const std::vector<int16_t> a = Codes(pairs, largest), b = Codes(pairs, largest);
      std::vector<int32_t> c(static_cast<size_t>(kPanel * kPanel), 77);
      Gram(GetParam(), {.pairs = pairs, .a = a.data(), .b = b.data(), .c = c.data()});
      ASSERT_EQ(c, Truth(pairs, a, b)) << pairs << " pairs up to " << largest;
      Gram(GetParam(), {.pairs = pairs, .a = a.data(), .b = a.data(), .c = c.data()});
      ASSERT_EQ(c, Truth(pairs, a, a)) << "with itself";
    }
  }
}

TEST_P(GramArch, AsManyRowsOfTheLargestCodesAsFit) {
  const int64_t pairs = 256;
  const std::vector<int16_t> a(static_cast<size_t>(pairs * kPanel * 2), 2047), b(a.size(), -2047);
  std::vector<int32_t> c(static_cast<size_t>(kPanel * kPanel));
  Gram(GetParam(), {.pairs = pairs, .a = a.data(), .b = b.data(), .c = c.data()});
  EXPECT_EQ(c, std::vector<int32_t>(c.size(), -512 * 2047 * 2047));
}

INSTANTIATE_TEST_SUITE_P(All, GramArch, ::testing::ValuesIn(VectorArchs()), ArchTestName);

TEST(Gram, TheTruthIsExact) {
  const std::vector<int16_t> a = Codes(40, 2047), b = Codes(40, 2047);
  std::vector<int32_t> c(static_cast<size_t>(kPanel * kPanel));
  internal::GramReference({.pairs = 40, .a = a.data(), .b = b.data(), .c = c.data()});
  EXPECT_EQ(c, Truth(40, a, b));
}

}  // namespace
}  // namespace octavo::kernels
