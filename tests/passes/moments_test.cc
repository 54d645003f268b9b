// The factor that codes make up for each other's errors by, against sums in double, and the codes.
#include "octavo/passes/quantize/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common_rows.h"
#include "octavo/ir/infer.h"
#include "octavo/passes/quantize/mixed_bits.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/rounding.h"

namespace octavo::passes::quantize {
namespace {

// From the last to the first: any order will do.
const ParallelFor kBackwards = [](int64_t n, const std::function<void(int64_t)>& task) {
  while (n-- > 0) task(n);
};

TEST(Moments, FactorOfRowsInAnyParts) {
  for (const int64_t k : {1, 7, 128, 129, 300}) {  // a stripe has 128 rows
    std::mt19937 rng(static_cast<unsigned>(k));
    const int64_t rows = 700;  // more than are waited for
    const std::vector<float> x = Rows(rows, k, rng);
    SecondMoments moments(k, kBackwards);
    for (int64_t r = 0; r < rows;) {
      const int64_t some = std::min<int64_t>(rows - r, 1 + static_cast<int64_t>(rng() % 300));
      moments.Add({x.data() + r * k, static_cast<size_t>(some * k)});
      r += some;
    }
    std::vector<double> h(static_cast<size_t>(k * k), 0.0);
    double mean = 0;
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        for (int64_t r = 0; r < rows; ++r) {
          h[static_cast<size_t>(i * k + j)] +=
              static_cast<double>(x[static_cast<size_t>(r * k + i)]) * x[static_cast<size_t>(r * k + j)];
        }
      }
      mean += h[static_cast<size_t>(i * k + i)] / static_cast<double>(k);
    }
    for (int64_t i = 0; i < k; ++i) h[static_cast<size_t>(i * k + i)] += 0.1 * mean;
    const auto c = Factor(std::move(moments), kBackwards);
    ASSERT_TRUE(c.has_value());
    const auto v = [&](int64_t row, int64_t column) {
      return row == column  ? 1.0
             : row > column ? 0.0
                            : static_cast<double>(c->v[static_cast<size_t>(row * k + column)]);
    };
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = i; j < k; ++j) {
        double got = 0;
        for (int64_t r = 0; r <= i; ++r)
          got += static_cast<double>(c->weight[static_cast<size_t>(r)]) * v(r, i) * v(r, j);
        ASSERT_NEAR(got, h[static_cast<size_t>(i * k + j)], 1e-4 * mean * std::sqrt(static_cast<double>(k)))
            << k << ": " << i << ", " << j;
      }
    }
  }
}

// H of columns that a pass made of channels is that of the rows that it makes of them; lent sums are as good as one's own.
TEST(Moments, ColumnsOfCalibratedChannels) {
  const int64_t k = 70, rows = 301;
  std::mt19937 rng(2);
  const std::vector<float> x = Rows(rows, k, rng);
  Columns columns{.of = "x", .channels = k, .index = {}, .divisor = {}};
  for (int64_t i = 0; i < k; ++i)
    columns.index.push_back(i), columns.divisor.push_back(1.0f + static_cast<float>(i % 4));
  for (const int64_t split : {3, 40, 3}) columns.index.push_back(split);
  const auto wide = static_cast<int64_t>(columns.index.size());
  std::vector<float> made;
  for (int64_t r = 0; r < rows; ++r) {
    for (const int64_t c : columns.index)
      made.push_back(x[static_cast<size_t>(r * k + c)] / columns.divisor[static_cast<size_t>(c)]);
  }
  SecondMoments want(wide, kBackwards), through(wide, kBackwards), seen(k, kBackwards), lent(wide, kBackwards);
  want.Add(made);
  through.Halve();
  through.Through(columns);
  through.Add(x);
  EXPECT_EQ(through.k(), wide);
  seen.Add(x);
  const quant::Moments sums = seen.Take();
  lent.Through(columns);
  EXPECT_TRUE(lent.empty());
  lent.Borrow(sums);
  EXPECT_FALSE(lent.empty());
  const std::vector<float> h = want.Sums();
  EXPECT_EQ(through.Sums(), lent.Sums());
  const std::vector<float> got = lent.Sums();
  for (int64_t i = 0; i < wide; ++i) {
    for (int64_t j = i; j < wide; ++j) {
      const auto at = [wide](int64_t a, int64_t b) { return static_cast<size_t>(a * wide + b); };
      ASSERT_NEAR(got[at(i, j)], h[at(i, j)], 1e-3 * std::sqrt(h[at(i, i)] * h[at(j, j)])) << i << ", " << j;
    }
  }
}

TEST(Moments, NothingOfNothing) {
  EXPECT_FALSE(Factor(SecondMoments(4, kBackwards), kBackwards).has_value()) << "no rows";
  SecondMoments zeros(4, kBackwards);
  zeros.Add(std::vector<float>(40, 0.0f));
  EXPECT_FALSE(Factor(std::move(zeros), kBackwards).has_value());
  SecondMoments one(3, kBackwards);  // a column that was never seen, and two that are equal: damping makes it definite
  one.Add(std::vector<float>{1, 0, 1, 2, 0, 2});
  EXPECT_TRUE(Factor(std::move(one), kBackwards).has_value());
}

// Each code from the last row on is the nearest to its weight and what the rows behind it lost, in double; k is no multiple of a block, n none of the
// columns that go together. A code may be the neighbour where the double lies between two.
TEST(Rounding, ColumnsByTheFactor) {
  const int64_t k = 150, n = 271, limit = 64;
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  SecondMoments moments(k, kBackwards);
  moments.Add(Rows(400, k, rng));
  const auto c = Factor(std::move(moments), kBackwards);
  ASSERT_TRUE(c.has_value());
  ir::Tensor w = ir::Tensor::Empty(ir::DType::kF32, {k, n});
  for (float& v : w.mutable_as<float>()) v = normal(rng);
  w.mutable_as<float>()[3] = 40.0f;  // beyond the scale: the code stays at the limit
  std::vector<float> scales(static_cast<size_t>(n));
  for (size_t j = 0; j < scales.size(); ++j) scales[j] = 0.04f + 0.0001f * static_cast<float>(j);
  const auto codes = RoundColumns(w, scales, {ir::DType::kS8, limit}, *c, kBackwards);
  ASSERT_TRUE(codes.has_value());
  ASSERT_EQ(codes->shape(), w.shape());
  int moved = 0;
  for (int64_t j = 0; j < n; ++j) {
    std::vector<double> lost(static_cast<size_t>(k));
    for (int64_t i = k - 1; i >= 0; --i) {
      double want = w.GetDouble(i * n + j);
      for (int64_t behind = i + 1; behind < k; ++behind)
        want += static_cast<double>(c->v[static_cast<size_t>(i * k + behind)]) * lost[static_cast<size_t>(behind)];
      const double scale = scales[static_cast<size_t>(j)], code = codes->GetDouble(i * n + j);
      const double nearest = std::clamp(want / scale, -double{limit}, double{limit});
      ASSERT_LE(std::fabs(code - nearest), 0.501) << i << ", " << j;
      lost[static_cast<size_t>(i)] = w.GetDouble(i * n + j) - code * scale;
      moved += code != std::nearbyint(std::clamp(w.GetDouble(i * n + j) / scale, -double{limit}, double{limit}));
    }
  }
  EXPECT_GT(moved, k * n / 20) << "codes that are not the nearest to their weights";
}

// The same in fp8, whose codes lie as far apart as their own size says.
TEST(Rounding, Fp8ColumnsByTheFactor) {
  const int64_t k = 150, n = 37;
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  SecondMoments moments(k, kBackwards);
  moments.Add(Rows(400, k, rng));
  const auto c = Factor(std::move(moments), kBackwards);
  ASSERT_TRUE(c.has_value());
  ir::Tensor w = ir::Tensor::Empty(ir::DType::kF32, {k, n});
  for (float& v : w.mutable_as<float>()) v = normal(rng);
  w.mutable_as<float>()[3] = 40.0f;  // beyond the scale: the code stays at the largest
  const std::vector<float> scales(static_cast<size_t>(n), 4.0f / 448);
  const auto codes = RoundColumns(w, scales, {ir::DType::kE4M3FN, 127}, *c, kBackwards);
  ASSERT_TRUE(codes.has_value());
  ASSERT_EQ(codes->dtype(), ir::DType::kE4M3FN);
  for (int64_t j = 0; j < n; ++j) {
    std::vector<double> lost(static_cast<size_t>(k));
    for (int64_t i = k - 1; i >= 0; --i) {
      double want = w.GetDouble(i * n + j);
      for (int64_t behind = i + 1; behind < k; ++behind)
        want += static_cast<double>(c->v[static_cast<size_t>(i * k + behind)]) * lost[static_cast<size_t>(behind)];
      const double scale = scales[static_cast<size_t>(j)], code = codes->GetDouble(i * n + j);
      const double nearest = std::clamp(want / scale, -448.0, 448.0);
      const double step = std::ldexp(1.0, std::max(std::ilogb(nearest), -6) - 3);
      ASSERT_LE(std::fabs(code - nearest), 0.501 * step) << i << ", " << j;
      lost[static_cast<size_t>(i)] = w.GetDouble(i * n + j) - code * scale;
    }
  }
}

// What rounding says that products lose, and what their power is, in double.
TEST(Rounding, TellsWhatProductsLose) {
  const int64_t k = 80, n = 12;
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  SecondMoments moments(k, kBackwards);
  moments.Add(Rows(300, k, rng));
  const auto c = Factor(std::move(moments), kBackwards);
  ASSERT_TRUE(c.has_value());
  ir::Tensor w = ir::Tensor::Empty(ir::DType::kF32, {k, n});
  for (float& v : w.mutable_as<float>()) v = normal(rng);
  for (const Compensation* fit : {&*c, static_cast<const Compensation*>(nullptr)}) {
    const auto q = RoundInBlocks(w, {ir::DType::kU4, 32}, fit, kBackwards);
    ASSERT_TRUE(q.has_value());
    double error = 0, power = 0;
    for (int64_t j = 0; j < n; ++j) {
      std::vector<double> lost(static_cast<size_t>(k));
      for (int64_t i = k - 1; i >= 0; --i) {
        const int64_t block = i / 32 * n + j;
        double off = w.GetDouble(i * n + j) -
                     (q->codes.GetDouble(i * n + j) - q->zero.GetDouble(block)) * q->scale.GetDouble(block);
        double product = w.GetDouble(i * n + j);
        lost[static_cast<size_t>(i)] = off;
        for (int64_t behind = i + 1; fit != nullptr && behind < k; ++behind) {
          const double share = fit->v[static_cast<size_t>(i * k + behind)];
          off += share * lost[static_cast<size_t>(behind)], product += share * w.GetDouble(behind * n + j);
        }
        const double weight = fit != nullptr ? fit->weight[static_cast<size_t>(i)] : 1;
        error += weight * off * off, power += weight * product * product;
      }
    }
    // Off by the roundings of some 80 floats in each of the sums.
    EXPECT_NEAR(q->error, error, 1e-4 * error);
    EXPECT_NEAR(PowerOfProducts(w, fit), power, 1e-9 * power);
    EXPECT_GT(error, 1e-4 * power);
  }
}

TEST(MixedBits, WhatLosesMostForEachWeightGetsEight) {
  const ValueId x{1}, y{2}, z{3};
  const std::vector<FourBits> all{{x, 100, 0.01}, {y, 400, 0.09}, {x, 100, 0.03}, {z, 300, 0.03}};
  using Indices = std::vector<size_t>;
  EXPECT_EQ(WorthEightBits(all, 4), Indices());
  EXPECT_EQ(WorthEightBits(all, 4.8), Indices());         // 180 weights: none of them fits
  EXPECT_EQ(WorthEightBits(all, 5), (Indices{0, 2}));     // 225: y, which loses most, is too large; x is not
  EXPECT_EQ(WorthEightBits(all, 6), (Indices{1}));        // 450
  EXPECT_EQ(WorthEightBits(all, 7), (Indices{1, 0, 2}));  // 675
  EXPECT_EQ(WorthEightBits(all, 8), (Indices{1, 0, 2, 3}));
  EXPECT_EQ(WorthEightBits({}, 6), Indices());
}

// A Linear of more rows than can be fitted in bearable time is not: its neighbour is, and a note names it.
TEST(Moments, DeepLinearsAreNotFitted) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  constexpr int64_t kDeep = 16'385, kShallow = 4;
  const auto linear = [&](int64_t depth, const char* name) {
    const ir::ValueId x = g.AddInput(std::string("x_") + name, {ir::DType::kF32, ir::SymShape{2, depth}});
    ir::Tensor w = ir::Tensor::Zeros(ir::DType::kF32, {depth, 2});
    for (int64_t i = 0; i < w.size(); ++i)
      w.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 7) - 3;
    const ir::NodeId id = g.AddNode(ir::Op::kMatMul, {x, g.AddConstant(w)}, 1, {}, name);
    g.SetOrigin(id, {name});
    g.AddOutput(name, g.node(id).output());
  };
  linear(kDeep, "deep"), linear(kShallow, "shallow");
  ASSERT_TRUE(ir::Inference::Run(g));
  std::vector<int64_t> asked;
  PassRun run;
  run.evidence.moments = [&](std::span<const ir::ValueId>, std::span<SecondMoments> into) -> ir::Status {
    for (SecondMoments& m : into) {
      asked.push_back(m.k());
      std::vector<float> rows(static_cast<size_t>(3 * m.k()), 1.0f);
      m.Add(rows);
    }
    return {};
  };
  ASSERT_TRUE(FitWeights(g, run));
  EXPECT_EQ(asked, std::vector<int64_t>{kShallow});
  EXPECT_EQ(run.fitted.size(), 1u);
  ASSERT_FALSE(run.notes.empty());
  EXPECT_NE(run.notes[0].find("'deep'"), std::string::npos) << run.notes[0];
}

}  // namespace
}  // namespace octavo::passes::quantize
