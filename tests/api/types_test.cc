// min_db picks the fewest layers that leave int8, and those that lose most; `dynamic` does to one Linear what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>

#include "octavo/api/optimize.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  ir::Graph graph;
  std::unique_ptr<quant::DataSource> data;
};

// Three Linears side by side. "rows": the rows of its activation have very different size, so that one scale loses the small ones. "weights":
// one weight of each column is a hundred times the others, which are then lost with any activation. "fine": all are codes times a scale.
Case ThreeLinears() {
  std::vector<float> coarse(size_t{64} * 64), fine(coarse.size()), plain(size_t{32} * 64), uneven(plain.size());
  for (size_t i = 0; i < coarse.size(); ++i) {
    coarse[i] = i / 64 == 40 ? 100.0f : std::sin(static_cast<float>(i));
    fine[i] = static_cast<float>(static_cast<int>(i * 37 % 255) - 127) / 127;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    plain[i] = i % 64 < 32 ? std::cos(static_cast<float>(i)) : 0.0f;
    uneven[i] = std::cos(static_cast<float>(i)) * (i < 64 ? 40.0f : 1.0f);
  }
  Case c;
  const ir::ValueId x = c.graph.AddInput("x", {DType::kF32, ir::SymShape{32, 64}});
  const ir::ValueId u = c.graph.AddInput("u", {DType::kF32, ir::SymShape{32, 64}});
  const auto linear = [&c](const char* name, ir::ValueId in, const std::vector<float>& w) {
    const ir::ValueId weights = c.graph.AddConstant(Tensor::F32({64, 64}, w));
    c.graph.AddOutput(std::string("of ") + name,
                      c.graph.node(c.graph.AddNode(ir::Op::kMatMul, {in, weights}, 1, {}, name)).output());
  };
  linear("rows", u, fine);
  linear("weights", x, coarse);
  linear("fine", x, fine);
  c.data = quant::InMemoryData({{{"x", Tensor::F32({32, 64}, plain)}, {"u", Tensor::F32({32, 64}, uneven)}}},
                               quant::InputsOf(c.graph));
  return c;
}

Case Exported(const std::string& name) {
  auto graph = ir::onnx::ReadFile(std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data" / name);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  auto data = quant::RandomData(2, quant::InputsOf(*graph), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
  EXPECT_TRUE(data.has_value()) << data.error().message;
  return {std::move(*graph), std::move(*data)};
}

ir::Result<Optimized> OptimizeCase(const Case& c, OptimizeOptions options) {
  options.data = c.data.get();
  options.threads = 1;
  options.calibrator = quant::Calibrator::kMinMax;
  // What these tests choose, the recipe would choose by itself.
  if (options.recipe == "int8" && !options.pipeline && options.pass_options.empty())
    options.pass_options["choose_rows"] = {{"db", 0.0}};
  return Optimize(c.graph, options);
}

OptimizeOptions AtLeast(const std::string& recipe, double db) {
  OptimizeOptions options;
  options.recipe = recipe;
  options.min_db = db;
  return options;
}

std::vector<std::string> Named(const Optimized& done, const std::string& type) {
  std::vector<std::string> names;
  for (const LayerLoss& layer : done.layers) {
    if (layer.type == type) names.push_back(layer.node);
  }
  return names;
}

TEST(Types, WhatIsEnoughStays) {
  const Case c = ThreeLinears();
  const auto plain = OptimizeCase(c, OptimizeOptions());
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  const auto done = OptimizeCase(c, AtLeast("int8", 0.99 * Decibels(Worst(plain->losses)->second)));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(*ir::onnx::WriteBytes(done->graph), *ir::onnx::WriteBytes(plain->graph));
  EXPECT_THAT(done->pipeline.dynamic, IsEmpty());
  EXPECT_THAT(done->pipeline.keep_float, IsEmpty());
  EXPECT_THAT(done->layers, IsEmpty()) << "nobody asked";
}

// The weights are lost whatever the activations are, so that layer stays float; the one beside it reads the same activation and goes with it.
TEST(Types, EachLayerGetsTheNextTypeThatIsEnough) {
  const Case c = ThreeLinears();
  const auto plain = OptimizeCase(c, OptimizeOptions());
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  const double rows = plain->losses.at("of rows").SqnrDb(), weights = plain->losses.at("of weights").SqnrDb();
  ASSERT_LT(weights, 20);
  ASSERT_LT(weights, rows);
  ASSERT_LT(rows, 40);
  const auto some = OptimizeCase(c, AtLeast("int8", rows - 1));
  ASSERT_TRUE(some.has_value()) << some.error().message;
  EXPECT_THAT(Named(*some, "float"), ElementsAre("weights", "fine"));
  EXPECT_THAT(Named(*some, "quantized"), ElementsAre("rows"));
  EXPECT_GE(Decibels(Worst(some->losses)->second), rows - 1);
  const auto all = OptimizeCase(c, AtLeast("int8", rows + 1));
  ASSERT_TRUE(all.has_value()) << all.error().message;
  EXPECT_THAT(Named(*all, "float"), ElementsAre("weights", "fine"));
  EXPECT_THAT(Named(*all, "dynamic"), ElementsAre("rows"));
  EXPECT_GE(Decibels(Worst(all->losses)->second), rows + 1);
}

// A pipeline of one's own goes through all passes in each attempt: the recipe's attempts begin behind those that are the same for all.
TEST(Types, AttemptsThatStartTogetherChooseTheSame) {
  const Case c = Exported("float/bert.ts17.sdpa.onnx");
  const auto plain = OptimizeCase(c, OptimizeOptions());
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  const double db = Decibels(Worst(plain->losses)->second) + 3;
  auto together = OptimizeCase(c, AtLeast("int8", db));
  ASSERT_TRUE(together.has_value()) << together.error().message;
  OptimizeOptions options = AtLeast("int8", db);
  options.pipeline = passes::PipelineOfRecipe("int8", passes::Registry::Own()).value();
  options.pipeline->options["choose_rows"] = {{"db", 0.0}};
  auto alone = OptimizeCase(c, options);
  ASSERT_TRUE(alone.has_value()) << alone.error().message;
  ASSERT_EQ(together->layers.size(), alone->layers.size());
  for (size_t i = 0; i < alone->layers.size(); ++i) {
    EXPECT_EQ(together->layers[i].node, alone->layers[i].node);
    EXPECT_EQ(together->layers[i].type, alone->layers[i].type);
    EXPECT_EQ(together->layers[i].stats.SqnrDb(), alone->layers[i].stats.SqnrDb());
  }
  EXPECT_FALSE(alone->pipeline.dynamic.empty() && alone->pipeline.keep_float.empty());
  together->graph.info.metadata.clear(), alone->graph.info.metadata.clear();
  EXPECT_EQ(*ir::onnx::WriteBytes(together->graph), *ir::onnx::WriteBytes(alone->graph));
}

TEST(Types, NothingButFloatsIsTold) {
  const Case c = ThreeLinears();
  const auto is_told = [&c](double db) {
    const auto done = OptimizeCase(c, AtLeast("int8", db));
    EXPECT_TRUE(done.has_value());
    return done && std::ranges::any_of(done->notes, [](const std::string& note) {
             return note.contains("leaves every layer in float");
           });
  };
  EXPECT_TRUE(is_told(150));
  EXPECT_FALSE(is_told(20));
}

// Linears whose activations one scale says exactly, and a scale a row does not; what they lose is their weights' fault, the first most.
Case LinearsThatRowsHarm(int count) {
  Case c;
  ir::TensorMap batch;
  for (int l = 0; l < count; ++l) {
    std::vector<float> weights(size_t{64} * 64), rows(size_t{32} * 64);
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = i / 64 == 40 ? 100.0f / static_cast<float>(l + 1) : std::sin(static_cast<float>(i));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * 37 % (50 + i / 64));
    rows[0] = 255.0f;
    const std::string name = std::to_string(l);
    const ir::ValueId x = c.graph.AddInput("x" + name, {DType::kF32, ir::SymShape{32, 64}});
    const ir::ValueId w = c.graph.AddConstant(Tensor::F32({64, 64}, weights));
    const ir::NodeId linear = c.graph.AddNode(ir::Op::kMatMul, {x, w}, 1, {}, "linear" + name);
    c.graph.AddOutput("y" + name, c.graph.node(linear).output());
    batch["x" + name] = Tensor::F32({32, 64}, rows);
  }
  c.data = quant::InMemoryData({batch}, quant::InputsOf(c.graph));
  return c;
}

TEST(Types, RowsThatDoNotHelpAreGivenUp) {
  const Case c = LinearsThatRowsHarm(8);
  OptimizeOptions options;
  options.fit = false;
  const auto plain = OptimizeCase(c, options);
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  options.dynamic = {"*"};
  const auto rows = OptimizeCase(c, options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_LT(Decibels(Worst(rows->losses)->second), Decibels(Worst(plain->losses)->second));
  options = AtLeast("int8", Decibels(Worst(plain->losses)->second) + 3);
  options.fit = false;
  std::vector<int64_t> attempts;  // of each step of the search
  options.progress = [&attempts](std::string_view stage, int64_t done, int64_t) {
    if (stage != "types") return;
    if (done == 0) attempts.push_back(0);
    ++attempts.back();
  };
  const auto done = OptimizeCase(c, options);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_GE(Decibels(Worst(done->losses)->second), *options.min_db);
  EXPECT_THAT(Named(*done, "dynamic"), IsEmpty());
  EXPECT_FALSE(Named(*done, "float").empty());
  ASSERT_EQ(attempts.size(), 3u);
  EXPECT_EQ(attempts[0], 2);  // rows
  EXPECT_EQ(attempts[2], 1);  // whether the floats leave any necessary
}

// The data as it is, and how many batches were taken of it.
class Counted : public quant::DataSource {
 public:
  explicit Counted(quant::DataSource& data) : data_(data) {}
  int taken() const { return taken_; }
  ir::Result<std::optional<quant::Batch>> Next() override {
    ++taken_;
    return data_.Next();
  }
  void Rewind() override { data_.Rewind(); }
  int64_t size() const override { return data_.size(); }
  std::string Describe() const override { return data_.Describe(); }
  bool random() const override { return data_.random(); }

 private:
  quant::DataSource& data_;
  int taken_ = 0;
};

TEST(Types, WhatCameNearIsToldByTheSearchItself) {
  const Case c = Exported("float/bert.ts17.sdpa.onnx");
  const auto plain = OptimizeCase(c, OptimizeOptions());
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  const auto searched = [&](bool explain, int* taken) {
    OptimizeOptions options = AtLeast("int8", Decibels(Worst(plain->losses)->second) + 3);
    options.explain = explain;
    Counted data(*c.data);
    options.data = &data, options.threads = 1, options.calibrator = quant::Calibrator::kMinMax;
    auto done = Optimize(c.graph, options);
    *taken = data.taken();
    return done;
  };
  int silent = 0, told = 0;
  ASSERT_TRUE(searched(false, &silent).has_value());
  const auto done = searched(true, &told);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(told, silent);
  OptimizeOptions again;
  again.dynamic = Named(*done, "dynamic"), again.keep_float = Named(*done, "float");
  ASSERT_GT(again.dynamic.size() + again.keep_float.size(), 0u);
  again.explain = true, again.pass_options["choose_rows"] = {{"db", 22.0}};
  const auto alone = OptimizeCase(c, again);
  ASSERT_TRUE(alone.has_value()) << alone.error().message;
  const auto words = [](const Optimized& o) {
    std::vector<std::string> all;
    for (const passes::NearMiss& m : o.misses) all.push_back(m.rule + " " + m.root + " " + m.kind + " " + m.reason);
    return all;
  };
  EXPECT_FALSE(words(*alone).empty());
  EXPECT_EQ(words(*done), words(*alone));
}

TEST(Types, EveryRecipeKeepsThem) {
  for (const char* recipe : {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"}) {
    SCOPED_TRACE(recipe);
    const Case c = Exported("float/bert.ts17.sdpa.onnx");
    OptimizeOptions plain;
    plain.recipe = recipe;
    const auto before = OptimizeCase(c, plain);
    ASSERT_TRUE(before.has_value()) << before.error().message;
    const double db = Decibels(Worst(before->losses)->second) + 3;
    const auto done = OptimizeCase(c, AtLeast(recipe, db));
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_GE(Decibels(Worst(done->losses)->second), db);
    EXPECT_GT(Named(*done, "quantized").size() + Named(*done, "dynamic").size(), 0u);
    EXPECT_GT(done->pipeline.keep_float.size() + done->pipeline.dynamic.size(), 0u);
    EXPECT_EQ(Named(*done, "float").size(), done->pipeline.keep_float.size());
    EXPECT_EQ(Named(*done, "dynamic").size(), done->pipeline.dynamic.size());
    OptimizeOptions replay;
    replay.pipeline = *passes::PipelineOfGraph(done->graph);
    const auto again = OptimizeCase(c, replay);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(*ir::onnx::WriteBytes(again->graph), *ir::onnx::WriteBytes(done->graph));
  }
}

// One scale for all rows loses most of those of "rows", so the recipe gives each its own.
TEST(Types, RowsThatOneScaleHarmsGetTheirOwn) {
  const Case c = ThreeLinears();
  OptimizeOptions options;
  const auto all = OptimizeCase(c, options);
  options.pass_options["choose_rows"] = {{"db", 20.0}};
  const auto done = OptimizeCase(c, options);
  ASSERT_TRUE(all.has_value() && done.has_value());
  EXPECT_THAT(done->pipeline.dynamic, ElementsAre("rows"));
  EXPECT_THAT(done->notes,
              ::testing::Contains(::testing::HasSubstr("1 Linear quantizes each row by a scale of its own, made at run "
                                                       "time: one scale for all would leave down to")));
  EXPECT_GT(done->losses.at("of rows").SqnrDb(), all->losses.at("of rows").SqnrDb() + 3);
  options.pass_options.clear();
  options.pipeline = *passes::PipelineOfGraph(done->graph);
  const auto again = OptimizeCase(c, options);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(*ir::onnx::WriteBytes(again->graph), *ir::onnx::WriteBytes(done->graph));
}

TEST(Types, ADynamicLinearBesideStaticOnes) {
  const Case c = ThreeLinears();
  OptimizeOptions options;
  const auto all = OptimizeCase(c, options);
  options.dynamic = {"r?ws"};
  const auto done = OptimizeCase(c, options);
  ASSERT_TRUE(all.has_value() && done.has_value());
  EXPECT_EQ(done->report.linear.done, 3);
  for (const passes::Candidate& linear : done->report.candidates) {
    if (linear.kind != "linear") continue;
    EXPECT_EQ(linear.rule == "dynamic", linear.nodes[0] == "rows") << linear.rule;
  }
  EXPECT_GT(done->losses.at("of rows").SqnrDb(), all->losses.at("of rows").SqnrDb() + 3);
  EXPECT_EQ(done->losses.at("of fine").SqnrDb(), all->losses.at("of fine").SqnrDb());
}

// A head whose logits lose little, and a cache beside it that loses much, to nobody's harm.
Case HeadAndCache() {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  Case c;
  ir::TensorMap batch;
  for (const char* name : {"head", "cache"}) {
    const bool is_head = *name == 'h';
    Tensor w = Tensor::Empty(DType::kF32, {64, 32}), x = Tensor::Empty(DType::kF32, {48, 64});
    for (int64_t at = 0; float& v : w.mutable_as<float>())
      v = normal(rng) * (!is_head && at++ / 32 == 40 ? 300.0f : 0.5f);  // one that leaves few codes to the others
    for (int64_t at = 0; float& v : x.mutable_as<float>()) v = !is_head && at++ % 64 == 40 ? 0 : normal(rng);
    const std::string input = std::string("of ") + name;
    const ir::ValueId in = c.graph.AddInput(input, {DType::kF32, ir::SymShape{48, 64}});
    const ir::NodeId linear = c.graph.AddNode(ir::Op::kMatMul, {in, c.graph.AddConstant(w)}, 1, {}, name);
    c.graph.AddOutput(is_head ? "logits" : "present", c.graph.node(linear).output());
    batch[input] = x;
  }
  c.data = quant::InMemoryData({batch}, quant::InputsOf(c.graph));
  return c;
}

TEST(Types, WhatIsLostIsWhatTheOutputsAreFor) {
  const Case c = HeadAndCache();
  OptimizeOptions options;
  options.recipe = "dynamic", options.fit = false, options.layers = true;
  const auto plain = OptimizeCase(c, options);
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  ASSERT_EQ(Worst(plain->losses)->first, "present");
  EXPECT_EQ(plain->layers[0].node, "head");
  EXPECT_EQ(plain->layers[0].output, "logits");
  EXPECT_EQ(plain->layers[0].share, 1);
  const double kl = plain->loss_details.rows.at("logits").MeanKl();
  EXPECT_EQ(plain->layers[0].kl, kl);
  const auto kept_by = [&](const std::function<void(OptimizeOptions&)>& ask) {
    OptimizeOptions asked = options;
    asked.layers = false;
    ask(asked);
    const auto done = OptimizeCase(c, asked);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return done ? Named(*done, "float") : std::vector<std::string>{"error"};
  };
  EXPECT_THAT(kept_by([&](auto& o) { o.max_kl = kl / 2; }), ElementsAre("head"));
  EXPECT_THAT(kept_by([&](auto& o) { o.max_kl = kl * 1.01; }), IsEmpty());
  EXPECT_THAT(kept_by([&](auto& o) { o.min_db = Decibels(Worst(plain->losses)->second) + 3; }), ElementsAre("cache"));
  const double cosine = plain->losses.at("present").MeanRowCosine();
  EXPECT_THAT(kept_by([&](auto& o) { o.min_cosine = (1 + cosine) / 2; }), ElementsAre("cache"));
  EXPECT_THAT(kept_by([&](auto& o) { o.min_cosine = cosine - 1e-6; }), IsEmpty());
  EXPECT_THAT(kept_by([&](auto& o) { o.min_cosine = (1 + cosine) / 2, o.max_kl = kl / 2; }),
              ::testing::UnorderedElementsAre("cache", "head"));
}

TEST(Types, WhatCannotBeIsAnError) {
  const Case c = ThreeLinears();
  const auto message = [&c](const OptimizeOptions& options) {
    const auto done = OptimizeCase(c, options);
    return done.has_value() ? "no error" : done.error().message;
  };
  const auto gemma = OptimizeCase(Exported("models/gemma.dyn18.eager.onnx"), AtLeast("weights8", 190));
  ASSERT_FALSE(gemma.has_value());
  EXPECT_THAT(gemma.error().message, HasSubstr("not kept even with every layer in float"));
  EXPECT_THAT(message(AtLeast("float", 20)), HasSubstr("min_db is about layers that are quantized"));
  OptimizeOptions options;
  options.dynamic = {"nobody"};
  EXPECT_THAT(message(options), HasSubstr("dynamic: no Linear is called 'nobody'"));
  options.recipe = "dynamic";
  EXPECT_THAT(message(options), HasSubstr("dynamic names Linears that recipe int8"));
  options = OptimizeOptions();
  options.max_kl = 0.01;
  EXPECT_THAT(message(options), HasSubstr("max_kl: no output of the model has rows of logits or probabilities"));
  options = AtLeast("int8", 20);
  options.threads = 1;
  const auto done = Optimize(c.graph, options);
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("min_db runs batches of calibration data"));
}

}  // namespace
}  // namespace octavo::api
