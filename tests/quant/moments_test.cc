// Second moments in whole numbers: near to sums in double, and the same bytes for every order and every cut.
#include "octavo/quant/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace octavo::quant {
namespace {

constexpr int64_t kChannels = 5;
using Row = std::vector<float>;

// Sums as passes/quantize/moments.cc makes them, in plain loops.
void Add(Moments& to, const Row& row) {
  std::vector<int16_t> codes(row.size());
  to.CountRows(1);
  const auto exponent = Moments::Code(row, codes.data());
  if (!exponent) return;
  const auto [sums, shift] = to.Of(*exponent);
  for (size_t i = 0; i < row.size(); ++i) {
    for (size_t j = i; j < row.size(); ++j)
      sums[to.Index(static_cast<int64_t>(i), static_cast<int64_t>(j))] += (int64_t{codes[i]} * codes[j]) << shift;
  }
}

Moments Of(const std::vector<Row>& rows) {
  Moments m(kChannels);
  for (const Row& row : rows) Add(m, row);
  return m;
}

std::string Bytes(const Moments& m) {
  std::string out;
  m.AppendTo(out);
  return out;
}

std::vector<Row> Rows(int count, int octaves) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<Row> rows;
  for (int r = 0; r < count; ++r) {
    Row row;
    for (int64_t i = 0; i < kChannels; ++i) row.push_back(std::ldexp(normal(rng), r % octaves - octaves / 2));
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(Moments, AreNearToSumsInDouble) {
  const std::vector<Row> rows = Rows(500, 30);
  const Moments m = Of(rows);
  for (int64_t i = 0; i < kChannels; ++i) {
    for (int64_t j = i; j < kChannels; ++j) {
      double sum = 0, size = 0;
      for (const Row& row : rows) {
        const double product = double{row[static_cast<size_t>(i)]} * row[static_cast<size_t>(j)];
        sum += product, size += std::fabs(product);
      }
      EXPECT_NEAR(m.At(i, j), sum, 2e-3 * size) << i << ", " << j;
    }
  }
  EXPECT_EQ(m.rows(), 500u);
}

TEST(Moments, ShardsInAnyOrderAreTheWhole) {
  const std::vector<Row> rows = Rows(90, 40);
  const std::string whole = Bytes(Of(rows));
  for (const size_t shards : {1, 4, 40}) {
    Moments sum;
    for (size_t s = shards; s-- > 0;) {
      std::vector<Row> part;
      for (size_t r = s; r < rows.size(); r += shards) part.push_back(rows[r]);
      ASSERT_TRUE(sum.Merge(Of(part)).has_value());
    }
    EXPECT_EQ(Bytes(sum), whole) << shards;
  }
  Moments wide(kChannels + 1);
  wide.CountRows(1);
  EXPECT_FALSE(wide.Merge(Of(rows)).has_value());
}

TEST(Moments, RowsThatSayNothingAreCountedAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  const Moments m = Of({Row(5, 0.0f), Row(5, 1e-30f), Row(5, 1e30f), Row(5, inf), {1, 2, std::nanf(""), 3, 4}});
  EXPECT_EQ(m.rows(), 5u);
  EXPECT_EQ(m.bytes(), 0u);
  EXPECT_EQ(m.At(0, 4), 0.0);
  EXPECT_EQ(Of({Row(5, 1.0f)}).At(0, 1), 1.0) << "a power of two has an exact code";
  EXPECT_EQ(Of({Row(5, std::nextafter(2.0f, 0.0f))}).At(0, 1), std::pow(2047.0 / 1024, 2))
      << "the largest code, not one more";
}

TEST(Moments, AreReadAsTheyWereWritten) {
  const Moments m = Of(Rows(64, 40));
  const std::string bytes = Bytes(m);
  std::string_view in = bytes;
  const auto read = Moments::Parse(in);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(in.empty());
  EXPECT_EQ(*read, m);
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    std::string_view some(bytes.data(), cut);
    EXPECT_FALSE(Moments::Parse(some).has_value()) << cut;
  }
  std::mt19937 rng(1);
  for (int trial = 0; trial < 3000; ++trial) {  // no crash, whatever stands there
    std::string wrong = bytes;
    wrong[rng() % std::min<size_t>(wrong.size(), trial % 2 == 0 ? 12 : 1000)] = static_cast<char>(rng());
    std::string_view some = wrong;
    const auto whatever = Moments::Parse(some);
    EXPECT_TRUE(!whatever || whatever->bytes() <= 8 * wrong.size());
  }
}

}  // namespace
}  // namespace octavo::quant
