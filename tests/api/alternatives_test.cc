// Where much was lost on held-out batches a note says what else would keep more, with figures that are true; else there is none.
#include "octavo/api/alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <random>

#include "octavo/api/optimize.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;
using quant::Calibrator;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Calibrator kDefault = quant::kDefaultCalibrator;
constexpr int64_t kDepth = 256, kClasses = 24, kSpoiled = 64;

// x [rows, 256] times a matrix. spoiled: in its last rows, which x meets with zeros, are numbers a thousand times the others, so that a scale for a column
// leaves nothing of the others, and one for a block of rows does.
Graph Model(const char* output, bool spoiled, int64_t columns = kClasses, float spoil = 300) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  Tensor w = Tensor::Empty(DType::kF32, {kDepth, columns});
  for (int64_t at = 0; float& v : w.mutable_as<float>()) {
    v = normal(rng) * (spoiled && at++ / columns >= kDepth - kSpoiled ? spoil : 0.2f);
  }
  Graph g;
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("rows"), kDepth}});
  const ValueId y = g.node(g.AddNode(Op::kMatMul, {x, g.AddConstant(w, "w")}, 1, {}, "fc")).output();
  g.AddOutput(output, y);
  return g;
}

// small: of what a tenth of the rows is multiplied by.
std::unique_ptr<quant::DataSource> Data(const Graph& g, int batches, float small = 1, int64_t rows = 64) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::vector<ir::TensorMap> all;
  for (int i = 0; i < batches; ++i) {
    Tensor x = Tensor::Empty(DType::kF32, {rows, kDepth});
    for (int64_t at = 0; float& v : x.mutable_as<float>()) {
      const float size = at / kDepth % 10 == 0 ? small : 1;
      v = at++ % kDepth >= kDepth - kSpoiled ? 0 : size * normal(rng);
    }
    all.push_back({{"x", x}});
  }
  return quant::InMemoryData(std::move(all), quant::InputsOf(g));
}

Optimized Done(const Graph& g, int batches, const std::function<void(OptimizeOptions&)>& change, float small = 1,
               int64_t rows = 64) {
  const auto data = Data(g, batches, small, rows);
  OptimizeOptions options;
  options.data = data.get(), options.threads = 1;
  change(options);
  auto done = Optimize(g, options);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return std::move(*done);
}

const auto kInt8 = [](OptimizeOptions&) {};

TEST(Alternatives, OfLogitsAreToldWithTheirDivergence) {
  const Graph g = Model("logits", true);
  const Optimized lost = Done(g, 8, kInt8);
  EXPECT_GT(lost.loss_details.rows.at("logits").MeanKl(), 10 * kMostKl);
  const Optimized other = Done(g, 8, [](OptimizeOptions& o) { o.recipe = "weights8"; });
  const double kl = other.loss_details.rows.at("logits").MeanKl();
  EXPECT_LT(kl, kMostKl);
  EXPECT_THAT(lost.notes, Contains(AllOf(HasSubstr("output 'logits' may lose more than a hundredth"),
                                         HasSubstr("on 64 samples held out of calibration. Measured there: "),
                                         HasSubstr(std::format("{:.4f} by recipe weights8", kl)))));
  for (const std::string& note : other.notes) EXPECT_THAT(note, Not(HasSubstr("may lose more")));
}

TEST(Alternatives, OfOtherOutputsAreToldWithTheirCosine) {
  const Graph g = Model("hidden", true);
  const Optimized lost = Done(g, 8, kInt8);
  const Optimized other = Done(g, 8, [](OptimizeOptions& o) { o.recipe = "weights8"; });
  EXPECT_THAT(
      lost.notes,
      Contains(AllOf(HasSubstr(std::format("cosine {:.4f}", lost.losses.at("hidden").MeanRowCosine())),
                     HasSubstr(std::format("{:.4f} by recipe weights8", other.losses.at("hidden").MeanRowCosine())))));
}

// What loses as much, as a scale a row does here, is not offered.
TEST(Alternatives, WhatGainsNothingIsNotNamed) {
  const Optimized lost = Done(Model("logits", true), 8, kInt8);
  for (const std::string& note : lost.notes) EXPECT_THAT(note, Not(HasSubstr("recipe dynamic")));
  const Optimized none = Done(Model("logits", true), 8, [](OptimizeOptions& o) { o.recipe = "fp8"; });
  EXPECT_THAT(none.notes, Not(Contains(HasSubstr("calibrator"))));
}

TEST(Alternatives, NothingIsSaidWhereNothingIsLostOrNobodyAsked) {
  const Graph g = Model("logits", true);
  const auto says = Contains(HasSubstr("may lose more"));
  EXPECT_THAT(Done(Model("logits", false), 8, kInt8).notes, Not(says));
  EXPECT_THAT(Done(Model("hidden", false), 8, kInt8).notes, Not(says));
  EXPECT_THAT(Done(g, 7, kInt8, 1, 1).notes, Not(says)) << "no row is held out";
  EXPECT_THAT(Done(g, 8, [](OptimizeOptions& o) { o.held_out = 0; }).notes, Not(says));
  EXPECT_THAT(Done(g, 8, [](OptimizeOptions& o) { o.min_db = 1; }).notes, Not(says));
  EXPECT_THAT(Done(g, 8, [](OptimizeOptions& o) { o.pipeline = *passes::PipelineOfRecipe("int8"); }).notes, Not(says));
}

// Rows that are too near to each other for choose_rows, and too far apart for one scale.
constexpr float kSmall = 0.045f;

TEST(Alternatives, RowsGetScalesOfTheirOwnWhereThatKeepsMore) {
  const Graph g = Model("hidden", false);
  const auto says = Contains(HasSubstr("every Linear quantizes each row by a scale of its own"));
  const auto nearest = [](OptimizeOptions& o) { o.fit = false, o.calibrator = Calibrator::kEntropy; };
  const Optimized one =
      Done(g, 8, [&](OptimizeOptions& o) { nearest(o), o.pass_options["choose_rows"]["db"] = 22.0; }, kSmall);
  EXPECT_THAT(one.notes, AllOf(Not(says), Contains(HasSubstr("may lose more"))));
  EXPECT_THAT(one.pipeline.dynamic, ElementsAre());
  const Optimized own = Done(g, 8, nearest, kSmall);
  EXPECT_THAT(own.notes, Contains(AllOf(HasSubstr("every Linear quantizes each row by a scale of its own"),
                                        HasSubstr("(set choose_rows.db=22 leaves it out)"))));
  EXPECT_THAT(own.notes, Not(Contains(HasSubstr("may lose more"))));
  EXPECT_THAT(own.pipeline.dynamic, ElementsAre("*"));
  const auto turn = [](const Optimized& o) { return 1 - o.losses.at("hidden").MeanRowCosine(); };
  EXPECT_GT(turn(one), kMostTurn);
  EXPECT_LT(turn(own), turn(one) / 2);
  EXPECT_TRUE(own.loss_details.held_out);
  // Less is not worth their time, and without loss there is nothing to do.
  EXPECT_THAT(Done(Model("hidden", true), 8, kInt8).notes, Not(says));
  EXPECT_THAT(Done(g, 8, nearest).notes, Not(says));
  EXPECT_THAT(Done(g, 8, [](OptimizeOptions& o) { o.recipe = "fp8"; }, kSmall).notes, Not(says));
}

// Where weights lose most, rows of their own are not worth the time of all Linears, and those that need them are named.
TEST(Alternatives, LinearsWhoseRowsOneScaleHarmsAreTold) {
  const Graph g = Model("hidden", true, kClasses, 3);
  const auto nearest = [](OptimizeOptions& o) { o.fit = false, o.calibrator = Calibrator::kEntropy; };
  const Optimized lost = Done(g, 8, nearest, kSmall);
  const Optimized other =
      Done(g, 8, [&](OptimizeOptions& o) { nearest(o), o.pass_options["choose_rows"]["db"] = 30.0; }, kSmall);
  EXPECT_THAT(lost.pipeline.dynamic, ElementsAre());
  EXPECT_THAT(other.pipeline.dynamic, ElementsAre("fc"));
  EXPECT_THAT(
      lost.notes,
      Contains(HasSubstr(std::format("{:.4f} by a scale for each row of Linears that one leaves less than 30 dB "
                                     "of their rows, set choose_rows.db=30",
                                     other.losses.at("hidden").MeanRowCosine()))));
}

// x attends to itself by scores of hundreds times sharp, so that its probabilities are one or the other key's, by less than a code.
Graph Sharp(float sharp) {
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}, const char* name = "") {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), name)).output();
  };
  const auto linear = [&](ValueId x, float scale, const char* name) {
    Tensor w = Tensor::Empty(DType::kF32, {kDepth, 32});
    for (float& v : w.mutable_as<float>()) v = scale * normal(rng);
    return node(Op::kMatMul, {x, g.AddConstant(w)}, {}, name);
  };
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{1, 64, kDepth}});
  const ValueId q = linear(x, sharp, "q"), k = linear(x, 1, "k"), v = linear(x, 0.1f, "v");
  const ValueId kt = node(Op::kTranspose, {k}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  const ValueId p = node(Op::kSoftmax, {node(Op::kMatMul, {q, kt})}, {{"axis", int64_t{-1}}}, "softmax");
  g.AddOutput("hidden", node(Op::kMatMul, {p, v}));
  return g;
}

Optimized Attends(const Graph& g, const char* recipe, Calibrator calibrator, int held_out) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::vector<ir::TensorMap> batches;
  for (int i = 0; i < 8; ++i) {
    Tensor x = Tensor::Empty(DType::kF32, {1, 64, kDepth});
    for (float& v : x.mutable_as<float>()) v = normal(rng);
    batches.push_back({{"x", x}});
  }
  const auto data = quant::InMemoryData(batches, quant::InputsOf(g));
  OptimizeOptions options;
  options.recipe = recipe, options.data = data.get(), options.threads = 1, options.held_out = held_out;
  options.keep_float = {"q", "k", "v"};  // which lose much of such scores, too
  options.calibrator = calibrator;
  auto result = Optimize(g, options);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return std::move(*result);
}
double Turn(const Optimized& o) { return 1 - o.losses.at("hidden").MeanRowCosine(); }

// What calibrators choose costs no time at run time. mse cuts off the largest scores, which alone count here.
TEST(Alternatives, RangesAreThoseOfAnotherCalibratorWhereThatKeepsMore) {
  const Graph g = Sharp(1);
  const auto says = [](const char* what) { return Contains(HasSubstr(std::format("calibrator {}: output", what))); };
  const Optimized chosen = Attends(g, "int8", kDefault, -1), entropy = Attends(g, "int8", Calibrator::kEntropy, -1);
  EXPECT_THAT(chosen.notes, says("entropy"));
  EXPECT_EQ(Turn(chosen), Turn(entropy));
  EXPECT_THAT(entropy.notes, Not(says("minmax"))) << "it was asked for";
  const Optimized as_asked = Attends(g, "int8", kDefault, 0);
  EXPECT_THAT(as_asked.notes, Not(says("entropy")));
  EXPECT_LT(Turn(chosen), 0.1 * Turn(as_asked));
}

TEST(Alternatives, AttentionStaysInFloatsWhereThatKeepsMore) {
  const Graph g = Sharp(8);
  for (const char* recipe : {"int8", "fp8"}) {
    const auto done = [&](int held_out) { return Attends(g, recipe, Calibrator::kMinMax, held_out); };
    const Optimized floats = done(-1), codes = done(0);
    EXPECT_THAT(floats.notes, Contains(HasSubstr("attention stays in floats: output 'hidden' has cosine "))) << recipe;
    EXPECT_THAT(codes.notes, Not(Contains(HasSubstr("attention stays in floats")))) << recipe;
    EXPECT_LT(Turn(floats), Turn(codes) / 2);
    EXPECT_THAT(floats.pipeline.keep_float, ElementsAre("q", "k", "v", "softmax"));
  }
}

// Logits by a small Linear behind a Tanh, and hardly by two large ones beside it.
Graph OneMatters(float size, bool others = true) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, std::vector<ValueId> in) { return g.node(g.AddNode(op, std::move(in), 1)).output(); };
  const auto linear = [&](ValueId x, int64_t columns, float scale) {
    Tensor w = Tensor::Empty(DType::kF32, {kDepth, columns});
    for (float& v : w.mutable_as<float>()) v = scale * normal(rng);
    return node(Op::kMatMul, {x, g.AddConstant(w)});
  };
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("rows"), kDepth}});
  const ValueId logits = linear(node(Op::kTanh, {x}), kClasses, size);
  g.AddOutput("logits",
              !others ? logits
                      : node(Op::kAdd, {logits, linear(node(Op::kRelu, {linear(x, kDepth, 0.1f)}), kClasses, 0.001f)}));
  return g;
}

TEST(Alternatives, LinearsThatLoseMostByFourBitsGetEight) {
  for (const char* recipe : {"dynamic4", "weights4"}) {
    const auto done = [&](float size, std::optional<double> bits, std::optional<double> of_pass = {}) {
      return Done(OneMatters(size), 8, [&](OptimizeOptions& o) {
        o.recipe = recipe, o.bits = bits;
        if (of_pass) o.pass_options[recipe]["bits"] = *of_pass;
      });
    };
    const auto says =
        Contains(AllOf(HasSubstr("weights have 4.5 bits on the mean"), HasSubstr("(bits 4 leaves it out)")));
    const Optimized more = done(1, {}), four = done(1, 4), same = done(1, {}, 4);
    EXPECT_THAT(more.notes, says) << recipe;
    EXPECT_LT(more.loss_details.rows.at("logits").MeanKl(), 2 * kMostKlOfFour) << recipe;
    EXPECT_GT(four.loss_details.rows.at("logits").MeanKl(), kMostKlOfFour) << recipe;
    EXPECT_THAT(four.notes, Not(says)) << recipe;
    EXPECT_THAT(same.notes, Not(says)) << recipe;
    EXPECT_THAT(done(0.1f, {}).notes, Not(says)) << recipe << ": little is lost";
  }
  // Four bits are all that one Linear can have below eight.
  const Optimized none = Done(OneMatters(1, false), 8, [](OptimizeOptions& o) { o.recipe = "dynamic4"; });
  EXPECT_GT(none.loss_details.rows.at("logits").MeanKl(), kMostKlOfFour);
  EXPECT_THAT(none.notes, Not(Contains(HasSubstr("bits on the mean"))));
}

// Rows with one channel that is much larger than the others lose by their codes of 8 bits: 4 bits of weights are judged by what they lose
// beyond that, though more bits would bring all of it below the bound.
TEST(Alternatives, WhatEightBitsLoseIsNoReasonForMore) {
  std::mt19937 rng(8);
  std::normal_distribution<float> normal;
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, std::vector<ValueId> in) { return g.node(g.AddNode(op, std::move(in), 1)).output(); };
  const auto linear = [&](ValueId x, float scale) {
    Tensor w = Tensor::Empty(DType::kF32, {kDepth, kClasses});
    for (float& v : w.mutable_as<float>()) v = scale * normal(rng);
    for (float& v : w.mutable_as<float>().first(kClasses)) v = 0;
    return node(Op::kMatMul, {x, g.AddConstant(w)});
  };
  Tensor size = Tensor::Empty(DType::kF32, {kDepth});
  for (float& v : size.mutable_as<float>()) v = 1;
  size.mutable_as<float>()[0] = 40;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("rows"), kDepth}});
  const ValueId large = linear(node(Op::kMul, {x, g.AddConstant(size)}), 0.125f);
  g.AddOutput("logits", node(Op::kAdd, {large, linear(node(Op::kTanh, {x}), 0.125f)}));
  const auto lost = [&](std::optional<double> bits) {
    const Optimized done = Done(g, 8, [&](OptimizeOptions& o) { o.recipe = "dynamic4", o.bits = bits; });
    EXPECT_THAT(done.notes, Not(Contains(HasSubstr("bits on the mean, since"))));
    return done.loss_details.rows.at("logits").MeanKl();
  };
  const double four = lost({}), eight = lost(8);
  EXPECT_GT(four, kMostKlOfFour);
  EXPECT_LT(four - eight, kMostKlOfFour);
  EXPECT_LT(lost(6), kMostKlOfFour);
}

// A row of one number has a cosine of 1, whatever it is: what varies between rows counts.
TEST(Alternatives, OfOutputsOfOneNumberARow) {
  const Optimized lost = Done(Model("score", true, 1), 8, kInt8);
  const double r2 = lost.losses.at("score").RSquared();
  EXPECT_LT(r2, 1 - 2 * kMostTurn);
  EXPECT_THAT(lost.notes,
              Contains(AllOf(HasSubstr("output 'score' may lose more"), HasSubstr(std::format(": R^2 {:.4f} on", r2)),
                             HasSubstr("1.0000 by recipe weights8"))));
  EXPECT_THAT(Done(Model("score", false, 1), 8, kInt8).notes, Not(Contains(HasSubstr("may lose more"))));
}

}  // namespace
}  // namespace octavo::api
