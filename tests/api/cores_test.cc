// choose_cores leaves those attention cores float to which probabilities of 8 bits do harm, says so, and writes it into the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "octavo/api/optimize.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Tensor;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRows = 48, kKeys = 600, kDepth = 8;

// Two cores of one K and V. The queries of "sharp" draw every row to the first key by e^6.5, so that each of the other keys, which together have half of
// the mass, is less than half a code; those of "flat" do not. `common`: added to all of V.
struct Case {
  ir::Graph graph;
  ir::TensorMap batch;
};
Case TwoCores(float common) {
  std::mt19937 rng(20261124);
  std::normal_distribution<float> normal;
  const auto random = [&](int64_t rows) {
    Tensor t = Tensor::Empty(DType::kF32, {1, 1, rows, kDepth});
    for (float& x : t.mutable_as<float>()) x = 0.3f * normal(rng);
    return t;
  };
  Case c;
  c.graph.info.opsets[""] = 18;
  const auto input = [&c](const char* name, Tensor t) {
    ir::SymShape shape;
    for (const int64_t d : t.shape()) shape.emplace_back(d);
    c.batch[name] = std::move(t);
    return c.graph.AddInput(name, {DType::kF32, shape});
  };
  Tensor keys = random(kKeys), values = random(kKeys), flat = random(kRows), sharp = random(kRows);
  for (int64_t i = 0; i < kKeys; ++i) keys.mutable_as<float>()[static_cast<size_t>(i * kDepth)] = i == 0 ? 1.0f : 0.0f;
  for (float& x : values.mutable_as<float>()) x += common;
  for (int64_t i = 0; i < kRows; ++i) sharp.mutable_as<float>()[static_cast<size_t>(i * kDepth)] = 6.5f;
  const ir::ValueId k = input("k", std::move(keys)), v = input("v", std::move(values));
  for (const char* name : {"sharp", "flat"}) {
    const ir::ValueId q = input(name, name == std::string("sharp") ? sharp : flat);
    const auto node = [&](ir::Op op, std::vector<ir::ValueId> in, const char* what, ir::Attrs attrs = {}) {
      return c.graph.node(c.graph.AddNode(op, std::move(in), 1, std::move(attrs), std::string(name) + what)).output();
    };
    const ir::ValueId kt = node(ir::Op::kTranspose, {k}, " k", {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    const ir::ValueId p =
        node(ir::Op::kSoftmax, {node(ir::Op::kMatMul, {q, kt}, " scores")}, " p", {{"axis", int64_t{-1}}});
    c.graph.AddOutput(std::string("of ") + name, node(ir::Op::kMatMul, {p, v}, " o"));
  }
  return c;
}

Optimized With(const Case& c, const std::function<void(OptimizeOptions&)>& set = [](OptimizeOptions&) {}) {
  OptimizeOptions options;
  const auto data = quant::InMemoryData({c.batch}, quant::InputsOf(c.graph));
  options.data = data.get();
  options.threads = 1;
  options.pass_options["choose_cores"] = {{"db", 31.0}};
  set(options);
  auto done = Optimize(c.graph, options);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return done ? std::move(*done) : Optimized();
}

int Count(const Optimized& done, const char* op) {
  const auto counts = OpCounts(done.graph);
  return counts.contains(op) ? counts.at(op) : 0;
}

void Never(OptimizeOptions& options) { options.pass_options.clear(); }

// What the log says of a core.
double Measured(const Optimized& done, const std::string& name) {
  double db = NAN;
  for (const std::string& line : done.log) {
    if (line.starts_with("choose_cores: probabilities of 8 bits leave ") && line.contains(name))
      std::istringstream(line.substr(std::string_view("choose_cores: probabilities of 8 bits leave ").size())) >> db;
  }
  return db;
}

TEST(Cores, OneThatCodesHarmStaysFloat) {
  const Case c = TwoCores(0);
  const Optimized never = With(c, Never), done = With(c);
  EXPECT_EQ(Count(never, "SdpaInt8"), 2);
  EXPECT_THAT(never.pipeline.keep_float, IsEmpty());
  EXPECT_EQ(Count(done, "SdpaInt8"), 1);
  EXPECT_EQ(Count(done, "Sdpa"), 1);
  EXPECT_THAT(done.pipeline.keep_float, ElementsAre(HasSubstr("sharp")));
  EXPECT_LT(never.losses.at("of sharp").SqnrDb(), 20);
  EXPECT_GT(done.losses.at("of sharp").SqnrDb(), 60);
  EXPECT_EQ(done.losses.at("of flat").SqnrDb(), never.losses.at("of flat").SqnrDb());
  EXPECT_THAT(done.notes,
              Contains(HasSubstr("1 attention core stays float: probabilities of 8 bits would leave down to")));
  for (const passes::Candidate& core : done.report.candidates) {
    if (core.kind != "attention") continue;
    const bool sharp = core.nodes[0].starts_with("sharp");
    EXPECT_EQ(core.rule, sharp ? "sdpa" : "sdpa_int8");
    EXPECT_THAT(core.reason, HasSubstr(sharp ? "stays float: probabilities of 8 bits would leave" : ""));
  }
}

TEST(Cores, TheFileSaysWhichStayFloat) {
  const Case c = TwoCores(0);
  const Optimized done = With(c);
  const auto pipeline = passes::PipelineOfGraph(done.graph);
  ASSERT_TRUE(pipeline.has_value());
  const Optimized again = With(c, [&](OptimizeOptions& options) { options.pipeline = *pipeline; });
  EXPECT_EQ(*ir::onnx::WriteBytes(again.graph), *ir::onnx::WriteBytes(done.graph));
}

// What is the same in all rows is no signal: with 100 added to V the outputs are as much nearer to the codes, in decibels of their own, and as useless.
TEST(Cores, WhatRowsHaveInCommonHidesNoNoise) {
  const Case c = TwoCores(100);
  const Optimized never =
      With(c, [](OptimizeOptions& options) { options.pass_options["choose_cores"] = {{"db", 1.0}}; });
  EXPECT_GT(never.losses.at("of sharp").SqnrDb(), 40);
  EXPECT_LT(Measured(never, "sharp"), 20);
}

TEST(Cores, RangesAloneDecideNothing) {
  const Case c = TwoCores(0);
  OptimizeOptions options;
  auto task = PrepareCalibration(c.graph, options);
  ASSERT_TRUE(task.has_value());
  const auto data = quant::InMemoryData({c.batch}, quant::InputsOf(c.graph));
  const auto ranges = RunCalibration(*task, *data, options);
  ASSERT_TRUE(ranges.has_value());
  const Optimized done = With(c, [&](OptimizeOptions& o) { o.data = nullptr, o.calibration = &*ranges; });
  EXPECT_EQ(Count(done, "SdpaInt8"), 2);
}

// min_db is reached by the other core in float; the one that the recipe left float already is no quantized layer.
TEST(Cores, LayersNameTheTypeThatACoreGot) {
  const Optimized done = With(TwoCores(0), [](OptimizeOptions& options) { options.min_db = 50; });
  ASSERT_EQ(done.layers.size(), 2U);
  for (const LayerLoss& layer : done.layers) EXPECT_EQ(layer.type, "float") << layer.node;
}

}  // namespace
}  // namespace octavo::api
