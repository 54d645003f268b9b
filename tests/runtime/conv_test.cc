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

TEST(ConvStep, AutomaticPaddingIsTheInterpreters) {
  std::mt19937 gen(4);
  const Graph g = ConvOf({8, 4, 3}, true, {{"auto_pad", "SAME_UPPER"}}, gen);
  EXPECT_EQ(Check(g, {{1, 4, 9}}, gen), "interpreter Conv");
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
