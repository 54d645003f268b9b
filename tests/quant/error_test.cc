#include "octavo/quant/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octavo::quant {
namespace {

using ir::Tensor;
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ErrorStats, KnownAnswers) {
  ErrorStats e;
  ASSERT_TRUE(e.Add(Tensor::F32({2, 2}, {3, 4, 0, 2}), Tensor::F32({2, 2}, {3, 4, 0, 1})));
  EXPECT_DOUBLE_EQ(e.SqnrDb(), 10 * std::log10(29.0));
  EXPECT_DOUBLE_EQ(e.Cosine(), 27 / std::sqrt(29.0 * 26.0));
  EXPECT_DOUBLE_EQ(e.MeanRowCosine(), 1);  // each row points the same way
  EXPECT_EQ(e.MaxAbs(), 1);
  EXPECT_EQ(e.MeanAbs(), 0.25);
  EXPECT_EQ(e.worst_batch(), 0);
  EXPECT_EQ(e.worst_element(), 3);
  EXPECT_FALSE(e.exact());
  ASSERT_TRUE(e.Add(Tensor::F32({1, 2}, {1, 0}), Tensor::F32({1, 2}, {0, 1})));
  EXPECT_DOUBLE_EQ(e.MeanRowCosine(), 2.0 / 3);
  EXPECT_NEAR(e.RowCosineError(), 1.0 / 3, 1e-12);  // of 1, 1 and 0: a deviation of the root of a third over that of 3
  EXPECT_EQ(e.count(), 6);
  EXPECT_EQ(e.worst_batch(), 0) << "the first of equals";
}

// As if each row were left out in its turn, which to first order is the same: rows of any length, one of them much worse.
TEST(ErrorStats, DecibelsHaveTheErrorOfRowsLeftOut) {
  const int64_t n = 400;
  std::vector<ErrorStats> without(static_cast<size_t>(n));
  ErrorStats all;
  for (int64_t row = 0; row < n; ++row) {
    const float length = 1 + static_cast<float>(row % 7),
                off = row % 50 == 0 ? 0.3f : 0.1f + 0.001f * static_cast<float>(row % 13);
    const auto want = Tensor::F32({1, 2}, {length, 1}), got = Tensor::F32({1, 2}, {length, 1 + off});
    ASSERT_TRUE(all.Add(want, got));
    for (int64_t other = 0; other < n; ++other) {
      if (other == row) continue;
      ASSERT_TRUE(without[static_cast<size_t>(other)].Add(want, got));
    }
  }
  double squares = 0;
  for (const ErrorStats& one : without) squares += std::pow(one.SqnrDb() - all.SqnrDb(), 2);
  const double jackknife = std::sqrt(squares * static_cast<double>(n - 1) / static_cast<double>(n));
  EXPECT_NEAR(all.SqnrError(), jackknife, 0.02 * jackknife);
  EXPECT_GT(all.SqnrError(), 0.1);
  ErrorStats same;  // each row loses the same share
  ASSERT_TRUE(same.Add(Tensor::F32({2, 1}, {1, 3}), Tensor::F32({2, 1}, {1.5f, 4.5f})));
  EXPECT_EQ(same.SqnrError(), 0);
  ErrorStats row;
  ASSERT_TRUE(row.Add(Tensor::F32({1, 2}, {1, 3}), Tensor::F32({1, 2}, {1, 4})));
  EXPECT_EQ(row.SqnrError(), 0);
}

// Of one number a row the cosine is always 1, whatever is wrong.
TEST(ErrorStats, RowsOfOneNumber) {
  ErrorStats e;
  EXPECT_FALSE(e.IsOneNumberARow());
  ASSERT_TRUE(e.Add(Tensor::F32({2, 2, 1}, {1, 2, 3, 4}), Tensor::F32({2, 2, 1}, {1, 2, 3, 5})));
  EXPECT_TRUE(e.IsOneNumberARow());
  EXPECT_EQ(e.MeanRowCosine(), 1);
  EXPECT_DOUBLE_EQ(e.RSquared(), 1 - 1 / 5.0);  // around 2.5
  ErrorStats other;
  ASSERT_TRUE(other.Add(Tensor::F32({2, 1}, {5, 3}), Tensor::F32({2, 1}, {5, 3})));
  e.Merge(other);
  EXPECT_DOUBLE_EQ(e.RSquared(), 1 - 1 / 10.0);  // 1, 2, 3, 3, 4, 5 around 3
  EXPECT_TRUE(e.IsOneNumberARow());
  ErrorStats wide;
  ASSERT_TRUE(wide.Add(Tensor::F32({1, 2}, {1, 2}), Tensor::F32({1, 2}, {1, 2})));
  e.Merge(wide);
  EXPECT_FALSE(e.IsOneNumberARow());
}

TEST(ErrorStats, NumbersThatDoNotVary) {
  ErrorStats e;
  EXPECT_EQ(e.RSquared(), 1);
  ASSERT_TRUE(e.Add(Tensor::F32({2, 1}, {2, 2}), Tensor::F32({2, 1}, {2, 1})));
  EXPECT_DOUBLE_EQ(e.RSquared(), 1 - 1 / 8.0);  // around 0
  ErrorStats zeros;
  ASSERT_TRUE(zeros.Add(Tensor::F32({1, 1}, {0}), Tensor::F32({1, 1}, {1})));
  EXPECT_EQ(zeros.RSquared(), -kInf);
}

TEST(ErrorStats, NothingDiffersAndNothingIsThere) {
  ErrorStats e;
  EXPECT_TRUE(e.exact());
  EXPECT_EQ(e.Cosine(), 1);
  ASSERT_TRUE(e.Add(Tensor::F32({3}, {1, -2, 3}), Tensor::F32({3}, {1, -2, 3})));
  EXPECT_TRUE(e.exact());
  EXPECT_EQ(e.SqnrDb(), kInf);
  EXPECT_DOUBLE_EQ(e.Cosine(), 1);
  ErrorStats zeros;  // a model that returns zeros must not look good
  ASSERT_TRUE(zeros.Add(Tensor::F32({3}, {1, -2, 3}), Tensor::F32({3}, {0, 0, 0})));
  EXPECT_EQ(zeros.SqnrDb(), 0);
  EXPECT_EQ(zeros.Cosine(), 0);
  ErrorStats from_zero;
  ASSERT_TRUE(from_zero.Add(Tensor::F32({1}, {0}), Tensor::F32({1}, {5})));
  EXPECT_EQ(from_zero.SqnrDb(), -kInf);
  ErrorStats empty;
  ASSERT_TRUE(empty.Add(Tensor::F32({0, 4}, {}), Tensor::F32({0, 4}, {})));
  ASSERT_TRUE(empty.Add(Tensor::F32({4, 0}, {}), Tensor::F32({4, 0}, {})));
  EXPECT_EQ(empty.count(), 0);
}

TEST(ErrorStats, OddValues) {
  ErrorStats e;
  ASSERT_TRUE(e.Add(Tensor::F32({4}, {NAN, kInf, -kInf, 1}), Tensor::F32({4}, {NAN, kInf, -kInf, 1})));
  EXPECT_EQ(e.mismatches(), 0);
  EXPECT_TRUE(e.exact());
  ASSERT_TRUE(e.Add(Tensor::F32({4}, {NAN, kInf, 1, 2}), Tensor::F32({4}, {1, -kInf, NAN, 2})));
  EXPECT_EQ(e.mismatches(), 3);
  EXPECT_EQ(e.count(), 2);
  EXPECT_FALSE(e.exact());
}

TEST(ErrorStats, MergeIsAddingBoth) {
  const auto a = Tensor::F32({2, 2}, {1, 2, 3, 4}), b = Tensor::F32({2, 2}, {1.5f, 2, 2, 4});
  const auto c = Tensor::F32({1, 2}, {7, 8}), d = Tensor::F32({1, 2}, {9, 8});
  ErrorStats both, first, second;
  ASSERT_TRUE(both.Add(a, b) && both.Add(c, d) && first.Add(a, b) && second.Add(c, d));
  first.Merge(second);
  EXPECT_EQ(first.SqnrDb(), both.SqnrDb());
  EXPECT_EQ(first.Cosine(), both.Cosine());
  EXPECT_EQ(first.MeanRowCosine(), both.MeanRowCosine());
  EXPECT_EQ(first.RowCosineError(), both.RowCosineError());
  EXPECT_EQ(first.SqnrError(), both.SqnrError());
  EXPECT_GT(both.SqnrError(), 0.1);
  EXPECT_EQ(first.MaxAbs(), 2);
  EXPECT_EQ(first.worst_batch(), 1);
  EXPECT_EQ(first.worst_element(), 0);
  EXPECT_EQ(first.MeanAbs(), both.MeanAbs());
}

TEST(ErrorStats, Errors) {
  ErrorStats e;
  EXPECT_EQ(e.Add(Tensor::F32({2}, {1, 2}), Tensor::F32({1, 2}, {1, 2})).error().message,
            "shapes differ: [2] is wanted, [1,2] was given");
  EXPECT_FALSE(e.Add(Tensor::Strings({1}, {"a"}), Tensor::Strings({1}, {"a"})));
  std::map<std::string, ErrorStats> stats;
  EXPECT_EQ(AddErrors({{"y", Tensor::ScalarF32(1)}}, {}, stats).error().message,
            "there is no output 'y' to compare with");
  EXPECT_EQ(AddErrors({{"y", Tensor::ScalarF32(1)}}, {{"y", Tensor::F32({1}, {1})}}, stats).error().message,
            "output 'y': shapes differ: [] is wanted, [1] was given");
  EXPECT_TRUE(AddErrors({{"z", Tensor::ScalarS64(1)}}, {{"z", Tensor::ScalarF32(1)}}, stats));
  EXPECT_TRUE(stats.at("z").exact());
}

}  // namespace
}  // namespace octavo::quant
