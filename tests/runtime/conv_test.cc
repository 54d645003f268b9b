// Conv as a step: near the interpreter for every shape of input, the same bits for every number of threads, and the interpreter
// itself where oneDNN is not for it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

Tensor Random(Shape shape, std::mt19937& gen) {
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& v : t.mutable_as<float>()) v = std::normal_distribution<float>()(gen);
  return t;
}

Graph ConvOf(const Shape& weights, bool bias, ir::Attrs attrs, std::mt19937& gen) {
  Graph g;
  g.info.opsets[""] = 18;
  ir::SymShape shape(weights.size());
  std::vector<ValueId> in = {g.AddInput("x", {DType::kF32, shape}), g.AddConstant(Random(weights, gen))};
  if (bias) in.push_back(g.AddConstant(Random({weights[0]}, gen)));
  g.AddOutput("y", g.node(g.AddNode(Op::kConv, std::move(in), 1, std::move(attrs), "conv")).output());
  return g;
}

// Returns the kernel of the step.
std::string Check(const Graph& g, const std::vector<Shape>& inputs, std::mt19937& gen) {
  auto one = Model::Compile(g, {.threads = 1}), three = Model::Compile(g, {.threads = 3});
  EXPECT_TRUE(one) << one.error().message;
  for (const Shape& shape : inputs) {
    const ir::TensorMap x = {{"x", Random(shape, gen)}};
    const auto want = ir::Interpret(g, x);
    EXPECT_TRUE(want) << want.error().message;
    const auto a = one->Run(x), b = three->Run(x);
    EXPECT_TRUE(a) << a.error().message;
    EXPECT_TRUE((*a)[0].SameBits((*b)[0])) << "threads";
    EXPECT_EQ((*a)[0].shape(), (*want)[0].shape());
    double error = 0, signal = 0;
    for (int64_t i = 0; i < (*want)[0].size(); ++i) {
      const double w = (*want)[0].GetDouble(i);
      error += std::pow((*a)[0].GetDouble(i) - w, 2), signal += w * w;
    }
    EXPECT_LT(error, 1e-12 * signal);  // 120 dB: other orders of float sums
  }
  return one->KernelOfEachStep()[0];
}

TEST(ConvStep, PatchesOfEverySize) {
  std::mt19937 gen(1);
  const Graph g = ConvOf({200, 3, 8, 8}, true, {{"strides", std::vector<int64_t>{8, 8}}}, gen);
  EXPECT_EQ(Check(g, {{1, 3, 32, 48}, {5, 3, 16, 16}, {1, 3, 32, 48}}, gen), "conv_f32 onednn");
}

TEST(ConvStep, OneDimensionWithPadding) {
  std::mt19937 gen(2);
  const Graph g =
      ConvOf({130, 20, 3}, false, {{"pads", std::vector<int64_t>{1, 1}}, {"strides", std::vector<int64_t>{2}}}, gen);
  EXPECT_EQ(Check(g, {{2, 20, 50}}, gen), "conv_f32 onednn");
}

TEST(ConvStep, Groups) {
  std::mt19937 gen(3);
  const Graph g = ConvOf({32, 4, 5}, true, {{"group", int64_t{8}}, {"pads", std::vector<int64_t>{2, 2}}}, gen);
  EXPECT_EQ(Check(g, {{3, 32, 40}}, gen), "conv_f32 onednn");
}

TEST(ConvStep, Transposed) {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const int64_t groups = seed % 3 == 0 ? 2 : 1, stride = 1 + static_cast<int64_t>(gen() % 3),
                  kernel = stride + static_cast<int64_t>(gen() % 3);
    const int64_t pad = kernel / 3, more = pad > 0 && stride > 1 ? static_cast<int64_t>(gen() % 2) : 0;
    const size_t dims = 1 + seed % 2;
    Graph g;
    g.info.opsets[""] = 18;
    Shape weights(dims + 2, kernel);
    weights[0] = 6 * groups, weights[1] = 5;
    std::vector<ValueId> in = {g.AddInput("x", {DType::kF32, ir::SymShape(dims + 2)}),
                               g.AddConstant(Random(weights, gen))};
    if (gen() % 2 == 0) in.push_back(g.AddConstant(Random({5 * groups}, gen)));
    g.AddOutput("y", g.node(g.AddNode(Op::kConvTranspose, std::move(in), 1,
                                      {{"group", groups},
                                       {"strides", std::vector<int64_t>(dims, stride)},
                                       {"pads", std::vector<int64_t>(2 * dims, pad)},
                                       {"output_padding", std::vector<int64_t>(dims, more)}},
                                      "conv"))
                         .output());
    Shape shape(dims + 2, 9);
    shape[0] = 2, shape[1] = 6 * groups;
    EXPECT_EQ(Check(g, {shape}, gen), "conv_f32 onednn");
  }
}

TEST(ConvStep, AutomaticPaddingIsTheInterpreters) {
  std::mt19937 gen(4);
  const Graph g = ConvOf({8, 4, 3}, true, {{"auto_pad", "SAME_UPPER"}}, gen);
  EXPECT_EQ(Check(g, {{1, 4, 9}}, gen), "interpreter Conv");
}

// Random operands, extremes among them, of every combination of types and zero points.
TEST(ConvStep, IntegersAreExact) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const bool extremes = gen() % 3 == 0;
    const auto bytes = [&](DType type, Shape shape) {
      Tensor t = Tensor::Empty(type, std::move(shape));
      for (uint8_t& v : t.mutable_as<uint8_t>())
        v = extremes ? (gen() % 2 == 0 ? 0x80 : 0x7f) : static_cast<uint8_t>(gen());
      return t;
    };
    const DType x_type = gen() % 2 == 0 ? DType::kU8 : DType::kS8, w_type = gen() % 2 == 0 ? DType::kU8 : DType::kS8;
    const int64_t channels = 1 + static_cast<int64_t>(gen() % 9), filters = 1 + static_cast<int64_t>(gen() % 150);
    Graph g;
    g.info.opsets[""] = 18;
    ir::SymShape any(4);
    any[1] = channels;
    std::vector<ValueId> in = {g.AddInput("x", {x_type, any}),
                               g.AddConstant(bytes(w_type, {filters, channels, 12, 12}))};
    if (gen() % 2 == 0) in.push_back(g.AddConstant(bytes(x_type, {})));
    if (in.size() == 3 && gen() % 2 == 0)
      in.push_back(g.AddConstant(bytes(w_type, gen() % 2 == 0 ? Shape{} : Shape{filters})));
    g.AddOutput(
        "y",
        g.node(g.AddNode(Op::kConvInteger, std::move(in), 1,
                         {{"pads", std::vector<int64_t>{1, 0, 2, 3}}, {"strides", std::vector<int64_t>{3, 2}}}, "conv"))
            .output());
    const ir::TensorMap x = {{"x", bytes(x_type, {2, channels, 17, 15})}};
    auto model = Model::Compile(g, {.threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->KernelOfEachStep()[0], "conv_integer onednn");
    const auto want = ir::Interpret(g, x);
    const auto got = model->Run(x);
    ASSERT_TRUE(want && got) << got.error().message;
    EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
  }
}

// Files in ONNX Runtime's operator form: groups, a scale, a zero point and a bias for each filter.
TEST(ConvStep, CodesAreExact) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const auto bytes = [&](DType type, Shape shape) {
      Tensor t = Tensor::Empty(type, std::move(shape));
      for (uint8_t& v : t.mutable_as<uint8_t>()) v = static_cast<uint8_t>(gen());
      return t;
    };
    const auto type = [&] { return gen() % 2 == 0 ? DType::kU8 : DType::kS8; };
    const DType x_type = type(), w_type = type(), y_type = type();
    const int64_t groups = gen() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(gen() % 5),
                  of_group = 1 + static_cast<int64_t>(gen() % 40);
    const int64_t channels = gen() % 2 == 0 ? groups : groups * 3, filters = groups * of_group;
    Graph g;
    g.info.opsets[""] = 18;
    const auto scales = [&](int64_t n, float most) {
      Tensor t = Tensor::Empty(DType::kF32, n == 1 ? Shape{} : Shape{n});
      for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(most / 10, most)(gen);
      return g.AddConstant(std::move(t));
    };
    ir::SymShape any(4);
    any[1] = channels;
    const bool each = gen() % 2 == 0;
    std::vector<ValueId> in = {g.AddInput("x", {x_type, any}),
                               scales(1, 0.05f),
                               g.AddConstant(bytes(x_type, {})),
                               g.AddConstant(bytes(w_type, {filters, channels / groups, 3, 3})),
                               scales(each ? filters : 1, 0.02f),
                               g.AddConstant(bytes(w_type, each ? Shape{filters} : Shape{})),
                               scales(1, 2.0f),
                               g.AddConstant(bytes(y_type, {}))};
    if (gen() % 2 == 0) {
      Tensor bias = Tensor::Empty(DType::kS32, {filters});
      for (int32_t& v : bias.mutable_as<int32_t>()) v = static_cast<int32_t>(gen() % 40000) - 20000;
      in.push_back(g.AddConstant(std::move(bias)));
    }
    g.AddOutput("y", g.node(g.AddNode(Op::kQLinearConv, std::move(in), 1,
                                      {{"pads", std::vector<int64_t>{1, 0, 2, 3}},
                                       {"strides", std::vector<int64_t>{1, 2}},
                                       {"group", groups}},
                                      "conv"))
                         .output());
    const ir::TensorMap x = {{"x", bytes(x_type, {2, channels, 17, 15})}};
    auto model = Model::Compile(g, {.threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->KernelOfEachStep()[0], "qlinear_conv onednn");
    const auto want = ir::Interpret(g, x);
    const auto got = model->Run(x);
    ASSERT_TRUE(want && got) << got.error().message;
    EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
  }
}

TEST(ConvStep, IntegersOfGroupsAreExact) {
  std::mt19937 gen(3);
  Graph g;
  g.info.opsets[""] = 18;
  Tensor w = Tensor::Empty(DType::kS8, {48, 1, 3, 3}), image = Tensor::Empty(DType::kU8, {2, 48, 9, 11});
  for (Tensor* t : {&w, &image}) {
    for (uint8_t& v : t->mutable_as<uint8_t>()) v = static_cast<uint8_t>(gen());
  }
  const ValueId x = g.AddInput("x", {DType::kU8, ir::SymShape{2, 48, 9, 11}});
  g.AddOutput(
      "y",
      g.node(g.AddNode(Op::kConvInteger, {x, g.AddConstant(std::move(w))}, 1, {{"group", int64_t{48}}}, "c")).output());
  const auto model = Model::Compile(g, {.threads = 2});
  ASSERT_TRUE(model);
  EXPECT_EQ(model->KernelOfEachStep()[0], "conv_integer onednn");
  const auto want = ir::Interpret(g, {{"x", image}}), got = model->Run({{"x", image}});
  ASSERT_TRUE(want && got);
  EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
}

TEST(ConvStep, SumsThatFloatsCannotHoldAreTheInterpreters) {
  for (const int64_t groups : {1, 2}) {
    Graph g;
    g.info.opsets[""] = 18;
    Tensor w = Tensor::Empty(DType::kS8, {groups, 1, 24, 24});  // 576 * 128 * 255 is above 2^24
    for (uint8_t& v : w.mutable_as<uint8_t>()) v = 0x80;
    const ValueId x = g.AddInput("x", {DType::kU8, ir::SymShape{1, groups, 24, 24}});
    const ir::NodeId conv =
        g.AddNode(Op::kConvInteger, {x, g.AddConstant(std::move(w))}, 1, {{"group", groups}}, "conv");
    g.AddOutput("y", g.node(conv).output());
    const auto model = Model::Compile(g, {.threads = 1});
    ASSERT_TRUE(model);
    EXPECT_EQ(model->KernelOfEachStep()[0], "interpreter ConvInteger");
  }
}

TEST(ConvStep, WhatDoesNotFitSaysSo) {
  std::mt19937 gen(5);
  auto model = Model::Compile(ConvOf({8, 4, 3}, true, {}, gen), {.threads = 1});
  ASSERT_TRUE(model);
  for (const Shape& shape : {Shape{1, 5, 9}, Shape{1, 4, 2}}) {
    const auto y = model->Run({{"x", Random(shape, gen)}});
    ASSERT_FALSE(y);
    EXPECT_NE(y.error().message.find("conv"), std::string::npos) << y.error().message;
  }
}

}  // namespace
}  // namespace octavo::runtime
