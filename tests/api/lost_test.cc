// What tells how much was lost, and what a goal leaves of it.
#include "octavo/api/lost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octavo::api {
namespace {

using ir::Tensor;

// Two rows of an output that should be 1, 0 and are 1, turn.
void Lose(Optimized& result, const std::string& output, float turn, bool classes) {
  const Tensor want = Tensor::F32({2, 2}, {1, 0, 1, 0}), got = Tensor::F32({2, 2}, {1, turn, 1, turn});
  EXPECT_TRUE(result.losses[output].Add(want, got).has_value());
  if (classes) result.loss_details.rows[output].Add(quant::RowKind::kLogits, want, got);
}

double TurnOf(float turn) { return 1 - 1 / std::sqrt(1 + static_cast<double>(turn) * turn); }

TEST(Lost, OutputsWithClassesTellAndOthersWhereThereAreNone) {
  Optimized result;
  EXPECT_EQ(MostLost(result).output, "");
  Lose(result, "a cache", 0.5f, false);
  Lose(result, "hidden", 0.1f, false);
  EXPECT_EQ(MostLost(result).output, "a cache");
  EXPECT_NEAR(MostLost(result).value, TurnOf(0.5f), 1e-6);
  Lose(result, "logits", 0.05f, true);
  const Lost most = MostLost(result);
  EXPECT_EQ(most.output, "logits");
  EXPECT_TRUE(most.is_kl);
  EXPECT_EQ(most.value, result.loss_details.rows.at("logits").MeanKl());
  EXPECT_EQ(Worst(result.losses)->first, "a cache");
  Optimized other;
  Lose(other, "logits", 0.2f, true);
  EXPECT_EQ(most.In(other), MostLost(other).value);
  EXPECT_TRUE(std::isinf(most.In(Optimized())));
}

TEST(Lost, NumbersThatAreNotFiniteAreEverything) {
  Optimized result;
  Lose(result, "logits", std::numeric_limits<float>::quiet_NaN(), true);
  EXPECT_TRUE(std::isinf(MostLost(result).value));
  OptimizeOptions options;
  options.max_kl = 100;
  EXPECT_TRUE(std::isinf(SpentOf(result, options)->lost));
}

TEST(Lost, AGoalIsSpentWhereMostOfItIs) {
  Optimized result;
  Lose(result, "a cache", 0.5f, false);
  Lose(result, "logits", 0.05f, true);
  OptimizeOptions options;
  EXPECT_EQ(SpentOf(result, options)->output, "logits");
  EXPECT_EQ(SpentOf(result, options)->lost, MostLost(result).value);
  EXPECT_FALSE(SpentOf(Optimized(), options).has_value());

  const double kl = result.loss_details.rows.at("logits").MeanKl();
  options.max_kl = 2 * kl;
  EXPECT_EQ(SpentOf(result, options)->output, "logits");
  EXPECT_DOUBLE_EQ(SpentOf(result, options)->lost, 0.5);
  options.min_cosine = 1 - TurnOf(0.5f) / 3;  // of every output
  EXPECT_EQ(SpentOf(result, options)->goal, "min_cosine");
  EXPECT_EQ(SpentOf(result, options)->output, "a cache");
  EXPECT_NEAR(SpentOf(result, options)->lost, 3, 1e-5);
  options.min_db = result.losses.at("a cache").SqnrDb() + 20;
  EXPECT_EQ(SpentOf(result, options)->goal, "min_db");
  EXPECT_NEAR(SpentOf(result, options)->lost, 100, 1e-6);
  options = {};
  options.min_db = result.losses.at("a cache").SqnrDb();
  EXPECT_EQ(SpentOf(result, options)->lost, 1) << "which is kept";
  Optimized equal;
  Lose(equal, "hidden", 0, false);
  options.min_cosine = 1;
  EXPECT_EQ(SpentOf(equal, options)->lost, 0);
  options = {};
  options.max_kl = 1;
  EXPECT_FALSE(SpentOf(equal, options).has_value()) << "no output has classes";
}

}  // namespace
}  // namespace octavo::api
