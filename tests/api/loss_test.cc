// What an optimization took is told whenever there is data, and is true.
#include "octavo/api/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>

#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/quant/rows.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::Graph Read(const std::string& name) {
  auto graph = ir::onnx::ReadFile(std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data" / name);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return std::move(*graph);
}

ir::Result<Optimized> OptimizeWith(ir::Graph graph, const std::string& recipe, quant::DataSource& data) {
  OptimizeOptions options;
  options.recipe = recipe;
  options.data = &data;
  options.threads = 1;
  return Optimize(std::move(graph), options);
}

// Whether calibration runs, the fit of 4-bit weights does, or neither.
TEST(Loss, IsThatOfTheHeldOutBatchForEveryRecipe) {
  struct Case {
    const char* recipe;
    double least, most;  // dB
  };
  const ir::Graph model = Read("float/bert.ts17.sdpa.onnx");
  for (const Case& c : {Case{"int8", 20, 60},
                        {"fp8", 10, 50},
                        {"dynamic", 20, 60},
                        {"dynamic4", 5, 40},
                        {"weights4", 5, 40},
                        {"weights8", 25, 70},
                        {"float", 90, HUGE_VAL}}) {
    SCOPED_TRACE(c.recipe);
    auto data = quant::RandomData(8, quant::InputsOf(model), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
    ASSERT_TRUE(data.has_value());
    const auto done = OptimizeWith(model, c.recipe, **data);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    ASSERT_EQ(done->losses.size(), model.outputs().size());
    const auto& [name, stats] = *Worst(done->losses);
    EXPECT_GT(stats.SqnrDb(), c.least);
    EXPECT_LE(stats.SqnrDb(), c.most);
    if (c.least > 80) continue;  // what follows has other sums
    // The same by hand.
    EXPECT_TRUE(done->loss_details.held_out);
    EXPECT_EQ(done->loss_details.samples, 4);  // an eighth of the rows
    quant::ErrorStats own;
    (*data)->Rewind();
    for (int64_t sample = 0; auto batch = *(*data)->Next();) {
      const int64_t size = batch->inputs.begin()->second.shape()[0];
      for (int64_t row = 0; row < size; ++row) {
        if (!quant::IsHeldOut(sample++, 8 * size, 4)) continue;
        const ir::TensorMap inputs = quant::RowsOf(batch->inputs, size, row, 1);
        const auto want = ir::Interpret(model, inputs), got = ir::Interpret(done->graph, inputs);
        ASSERT_TRUE(want.has_value() && got.has_value());
        ir::TensorMap a, b;
        for (size_t i = 0; i < model.outputs().size(); ++i) {
          if (model.outputs()[i].name == name) a[name] = (*want)[i], b[name] = (*got)[i];
        }
        LeaveOutPadding(inputs, a);
        LeaveOutPadding(inputs, b);
        ASSERT_TRUE(own.Add(a[name], b[name]).has_value());
      }
    }
    EXPECT_NEAR(stats.SqnrDb(), own.SqnrDb(), 0.1);
  }
}

TEST(Loss, WhatEachLayerAddsIsKnownOfAllThatIsQuantized) {
  const ir::Graph model = Read("float/bert.ts17.sdpa.onnx");
  auto data = quant::RandomData(8, quant::InputsOf(model), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
  ASSERT_TRUE(data.has_value());
  const auto done = OptimizeWith(model, "int8", **data);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  std::set<std::string> known;
  double most = 0;
  for (const LayerDifference& d : done->added) known.insert(d.node), most = std::max(most, d.own_db);
  for (const passes::Candidate& c : done->report.candidates) {
    if (c.kind != "linear" && c.kind != "attention") continue;
    EXPECT_TRUE(known.contains(c.nodes[0])) << c.nodes[0];
  }
  EXPECT_GT(most, 20);
  OptimizeOptions quick;
  quick.data = data->get(), quick.threads = 1, quick.explain = false;
  const auto unexplained = Optimize(model, quick);
  ASSERT_TRUE(unexplained.has_value()) << unexplained.error().message;
  EXPECT_TRUE(unexplained->added.empty());
}

TEST(Loss, AFusedQuantizedModelIsEqual) {
  const ir::Graph model = Read("models/sdpa_plain.ts17.ort-qdq-u8s8.onnx");
  auto data = quant::RandomData(1, quant::InputsOf(model), {});
  ASSERT_TRUE(data.has_value());
  const auto done = OptimizeWith(model, "quantized", **data);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  ASSERT_NE(Worst(done->losses), nullptr);
  EXPECT_TRUE(Worst(done->losses)->second.exact());
}

// Neighbouring weights cancel and the rows of x hardly vary: the product is smaller than half a code of x. The index of the largest
// is no float and is not told.
TEST(Loss, AModelThatIsLostGetsANote) {
  std::vector<float> w(64 * 8), x(4 * 64);
  for (size_t i = 0; i < w.size(); ++i) w[i] = i / 8 % 2 == 0 ? 1.0f : -1.0f;
  for (size_t i = 0; i < x.size(); ++i) x[i] = 100.0f + 0.001f * std::sin(static_cast<float>(i));
  ir::Graph g;
  const ir::ValueId in = g.AddInput("x", {DType::kF32, ir::SymShape{4, 64}});
  const ir::NodeId product = g.AddNode(ir::Op::kMatMul, {in, g.AddConstant(Tensor::F32({64, 8}, w))}, 1, {}, "product");
  const ir::NodeId largest = g.AddNode(ir::Op::kArgMax, {g.node(product).output()}, 1, {{"axis", int64_t{1}}});
  g.AddOutput("y", g.node(product).output());
  g.AddOutput("i", g.node(largest).output());
  const auto data = quant::InMemoryData({{{"x", Tensor::F32({4, 64}, x)}}}, quant::InputsOf(g));
  const auto done = OptimizeWith(g, "int8", *data);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  ASSERT_EQ(done->losses.size(), 1u);
  EXPECT_EQ(done->losses.begin()->first, "y");
  EXPECT_LT(done->losses.begin()->second.SqnrDb(), 1);
  EXPECT_THAT(done->notes, ElementsAre(HasSubstr("output 'y' is far from that of the model as it was")));
}

TEST(Loss, RowsOfPaddingAreLeftOut) {
  const auto floats = [](ir::Shape shape) {
    std::vector<float> values(static_cast<size_t>(ir::ElementCount(shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return Tensor::F32(std::move(shape), values);
  };
  const ir::TensorMap outputs{{"rows", floats({6, 2})},      {"split", floats({2, 2, 3, 1})},
                              {"tokens", floats({2, 3, 2})}, {"heads", floats({2, 3, 2, 2})},
                              {"step", floats({2, 1, 2})},   {"pooled", floats({2, 3})},
                              {"other", floats({3, 3, 1})}};
  ir::TensorMap left = outputs;
  LeaveOutPadding({{"attention_mask", Tensor::S64({2, 3}, {1, 1, 0, 0, 1, 1})}}, left);
  EXPECT_TRUE(left["tokens"].SameBits(Tensor::F32({4, 2}, {0, 1, 2, 3, 8, 9, 10, 11})));
  EXPECT_TRUE(left["heads"].SameBits(Tensor::F32({4, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23})));
  EXPECT_TRUE(left["rows"].SameBits(left["tokens"]));
  EXPECT_TRUE(left["split"].SameBits(Tensor::F32({8, 1}, {0, 1, 3, 4, 7, 8, 10, 11}))) << "heads before positions";
  for (const char* name : {"step", "pooled", "other"}) EXPECT_TRUE(left[name].SameBits(outputs.at(name))) << name;
  left = outputs;
  LeaveOutPadding({{"attention_mask", Tensor::F32({2, 3}, {0, 0, -1e4f, 0, 0, 0})}}, left);
  EXPECT_EQ(left, outputs) << "what is added to scores is no such mask";
}

// Two Linears side by side. The weights of the first have a column each of which one number is a thousand times the others, so that
// these are lost; those of the second are codes times a scale already.
TEST(Loss, LayersTellWhereItHappens) {
  std::vector<float> coarse(64 * 64), fine(64 * 64), x(32 * 64);
  for (size_t i = 0; i < coarse.size(); ++i) {
    coarse[i] = i / 64 == 40 ? 1000.0f : std::sin(static_cast<float>(i));
    fine[i] = static_cast<float>(static_cast<int>(i * 37 % 255) - 127) / 127;
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 64 < 32 ? std::cos(static_cast<float>(i)) : 0.0f;
  ir::Graph g;
  const ir::ValueId in = g.AddInput("x", {DType::kF32, ir::SymShape{32, 64}});
  for (const auto& [name, w] : {std::pair{"coarse", &coarse}, {"fine", &fine}}) {
    const ir::NodeId product = g.AddNode(ir::Op::kMatMul, {in, g.AddConstant(Tensor::F32({64, 64}, *w))}, 1, {}, name);
    g.AddOutput(std::string("of ") + name, g.node(product).output());
  }
  const auto data = quant::InMemoryData({{{"x", Tensor::F32({32, 64}, x)}}}, quant::InputsOf(g));
  for (const char* recipe : {"int8", "dynamic", "weights8"}) {
    SCOPED_TRACE(recipe);
    OptimizeOptions options;
    options.recipe = recipe;
    options.data = data.get();
    options.threads = 1;
    options.layers = true;
    const auto done = Optimize(g, options);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    ASSERT_EQ(done->layers.size(), 2u);
    EXPECT_EQ(done->layers[0].node, "coarse");
    EXPECT_EQ(done->layers[0].output, "of coarse");
    EXPECT_EQ(done->layers[1].node, "fine");
    EXPECT_EQ(done->layers[1].output, "of fine");
    EXPECT_NEAR(done->layers[0].share + done->layers[1].share, 1, 1e-9);
    for (const LayerLoss& layer : done->layers) {
      EXPECT_NEAR(layer.stats.SqnrDb(), done->losses.at(layer.output).SqnrDb(), 0.01) << "they do not meet";
    }
    options.keep_float = {"coarse"};
    const auto kept = Optimize(g, options);
    ASSERT_TRUE(kept.has_value()) << kept.error().message;
    ASSERT_EQ(kept->layers.size(), 1u);
    EXPECT_EQ(kept->layers[0].node, "fine");
  }
}

TEST(Loss, LayersNeedDataAndARecipeThatQuantizes) {
  const ir::Graph model = Read("float/bert.ts17.sdpa.onnx");
  auto data = quant::RandomData(1, quant::InputsOf(model), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
  OptimizeOptions options;
  options.recipe = "dynamic";
  options.layers = true;
  auto done = Optimize(model, options);
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("layers runs batches of calibration data"));
  options.recipe = "float";
  options.data = data->get();
  done = Optimize(model, options);
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("this recipe quantizes none"));
}

// What is held out changes nothing but the loss; what is not, changes the file. Rows that stand alone are held out one by one.
TEST(Loss, CalibrationAndFitDoNotSeeWhatIsHeldOut) {
  const ir::Graph model = Read("float/bert.ts17.sdpa.onnx");
  const quant::RandomOptions ids{.limits = {{"input_ids", 60}, {"token_type_ids", 2}}};
  std::vector<ir::TensorMap> rows;
  auto random = quant::RandomData(5, quant::InputsOf(model), ids);
  ASSERT_TRUE(random.has_value());
  while (const auto batch = *(*random)->Next()) {
    for (int64_t row = 0; row < 4; ++row) rows.push_back(quant::RowsOf(batch->inputs, 4, row, 1));
  }
  ASSERT_EQ(rows.size(), 20);
  const auto optimized = [&](std::set<size_t> without, int held_out) {
    std::vector<ir::TensorMap> some;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!without.contains(i)) some.push_back(rows[i]);
    }
    const auto data = quant::InMemoryData(std::move(some), quant::InputsOf(model));
    OptimizeOptions options;
    options.data = data.get(), options.threads = 1, options.held_out = held_out;
    auto done = Optimize(model, options);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return std::move(*done);
  };
  const auto bytes = [](const Optimized& done) { return *ir::onnx::WriteBytes(done.graph); };
  const Optimized eighth = optimized({}, -1), all = optimized({5, 11}, 0), other = optimized({4, 11}, 0);
  EXPECT_EQ(eighth.data, "18 of 20 samples in 20 batches in memory");
  EXPECT_EQ(bytes(eighth), bytes(all));
  EXPECT_NE(bytes(eighth), bytes(other)) << "other rows give the same file: the test shows nothing";
  EXPECT_EQ(eighth.loss_details.samples, 2);
  EXPECT_TRUE(eighth.loss_details.held_out);
  EXPECT_EQ(WhatWasSeen(eighth.loss_details), "2 samples held out of calibration");
  const auto& [name, stats] = *Worst(eighth.losses);
  const auto [low, high] = Spread(eighth.loss_details, name);
  EXPECT_LT(low, high);
  EXPECT_GE(stats.SqnrDb(), low - 1e-9);
  EXPECT_LE(stats.SqnrDb(), high + 1e-9);
  EXPECT_FALSE(all.loss_details.held_out);
  EXPECT_EQ(WhatWasSeen(all.loss_details), "8 samples, which calibration saw");
  EXPECT_EQ(all.loss_details.samples, 8);
}

// 32 rows in one batch, by fours, one by one and ragged.
TEST(Loss, BatchesOfAnySizeGiveOneLossAndOneModel) {
  const ir::Graph model = Read("float/bert.ts17.sdpa.onnx");
  auto random = quant::RandomData(1, quant::InputsOf(model),
                                  {.limits = {{"input_ids", 60}, {"token_type_ids", 2}},
                                   .dims = {{model.value(model.inputs()[0]).type.shape->front().symbol(), 32}}});
  ASSERT_TRUE(random.has_value());
  const ir::TensorMap all = (*(*random)->Next())->inputs;
  std::set<std::string> models;
  std::set<std::tuple<double, double, double>> losses;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{32}, std::vector<int64_t>(8, 4),
                                            std::vector<int64_t>(32, 1), std::vector<int64_t>{5, 27}}) {
    std::vector<ir::TensorMap> batches;
    for (int64_t first = 0; const int64_t size : sizes) {
      batches.push_back(quant::RowsOf(all, 32, first, size));
      first += size;
    }
    const auto data = quant::InMemoryData(std::move(batches), quant::InputsOf(model));
    OptimizeOptions options;
    options.data = data.get(), options.threads = static_cast<int>(1 + sizes.size() % 2);
    const auto done = Optimize(model, options);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(WhatWasSeen(done->loss_details), "4 samples held out of calibration");
    models.insert(*ir::onnx::WriteBytes(done->graph));
    const auto& [name, stats] = *Worst(done->losses);
    losses.emplace(stats.SqnrDb(), stats.MeanRowCosine(), Spread(done->loss_details, name).first);
  }
  EXPECT_EQ(models.size(), 1);
  EXPECT_EQ(losses.size(), 1);
}

// A sequence without a batch: what looks like rows are its positions.
TEST(Loss, RowsThatSeeEachOtherStayTogether) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  const auto weight = [&g](const char* name) {
    ir::Tensor w = ir::Tensor::Empty(ir::DType::kF32, {16, 16});
    for (int at = 0; float& v : w.mutable_as<float>()) v = static_cast<float>(at++ * 37 % 19 - 9) / 9;
    return g.AddConstant(w, name);
  };
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("n"), 16}});
  const ir::ValueId h = g.node(g.AddNode(ir::Op::kMatMul, {x, weight("w0")}, 1, {}, "fc0")).output();
  const ir::ValueId c =
      g.node(g.AddNode(ir::Op::kCumSum, {h, g.AddConstant(ir::Tensor::ScalarS64(0), "axis")}, 1, {}, "sum")).output();
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kMatMul, {c, weight("w1")}, 1, {}, "fc1")).output());
  auto data = quant::RandomData(16, quant::InputsOf(g), {});
  ASSERT_TRUE(data.has_value());
  const auto done = OptimizeWith(g, "int8", **data);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(done->loss_details.samples, 2);  // of 16 batches
}

TEST(Loss, WhichAreHeldOut) {
  for (const int64_t size : {1, 2, 7, 8, 20, 41}) {
    for (int64_t held = 0; held <= size; ++held) {
      int64_t count = 0;
      for (int64_t i = 0; i < size; ++i) count += quant::IsHeldOut(i, size, held);
      EXPECT_EQ(count, held) << size;
    }
  }
  std::set<int64_t> places;  // of every eighth: not one alone of what comes back with each batch
  for (int64_t i = 0; i < 256; ++i) {
    if (quant::IsHeldOut(i, 256, 32)) places.insert(i % 8);
  }
  EXPECT_EQ(places.size(), 8);
}

TEST(Loss, HowManyAreHeldOut) {
  for (const auto& [size, asked, held] : std::initializer_list<std::tuple<int64_t, int, int64_t>>{{0, -1, 0},
                                                                                                  {1, -1, 0},
                                                                                                  {1, 3, 0},
                                                                                                  {2, -1, 0},
                                                                                                  {7, -1, 0},
                                                                                                  {15, -1, 1},
                                                                                                  {16, -1, 2},
                                                                                                  {40, -1, 5},
                                                                                                  {8, 0, 0},
                                                                                                  {8, 3, 3},
                                                                                                  {3, 9, 2}})
    EXPECT_EQ(HeldOutOf(size, asked), held) << size << " " << asked;
}

TEST(Loss, WithoutDataNothingIsTold) {
  OptimizeOptions options;
  options.recipe = "dynamic";
  const auto done = Optimize(Read("float/bert.ts17.sdpa.onnx"), options);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_TRUE(done->losses.empty());
  EXPECT_EQ(Worst(done->losses), nullptr);
}

}  // namespace
}  // namespace octavo::api
