// Products of two activations: operands that are repeated along axes of matrices run in the kernel, too, with the interpreter's results.
#include <gmock/gmock.h>
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

Tensor Reals(const Shape& shape, std::mt19937& gen) {
  Tensor t = Tensor::Empty(DType::kF32, shape);
  for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-1, 1)(gen);
  return t;
}

TEST(BatchedMatMul, OperandsAreRepeatedAsInNumPy) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{2, 3, 4, 5}, {2, 3, 5, 6}}, {{2, 3, 4, 5}, {3, 5, 6}},
                                                      {{2, 3, 4, 5}, {2, 1, 5, 6}}, {{2, 1, 4, 5}, {1, 3, 5, 6}},
                                                      {{4, 5}, {2, 3, 5, 6}},       {{2, 150, 5}, {5, 6}},
                                                      {{2, 150, 5}, {1, 5, 6}},     {{3, 4, 5}, {2, 1, 1, 5, 6}},
                                                      {{1, 5}, {2, 5, 1}},          {{7, 1, 4, 5}, {7, 5, 5, 6}}};
  std::mt19937 gen(20261127);
  for (const auto& [a, b] : cases) {
    SCOPED_TRACE(ir::ToString(a) + " " + ir::ToString(b));
    Graph g;
    const auto symbols = [](const Shape& s) { return ir::SymShape(s.begin(), s.end()); };
    const ir::ValueId x = g.AddInput("a", {DType::kF32, symbols(a)}), y = g.AddInput("b", {DType::kF32, symbols(b)});
    g.AddOutput("y", g.node(g.AddNode(Op::kMatMul, {x, y}, 1, {}, "product")).output());
    const ir::TensorMap inputs = {{"a", Reals(a, gen)}, {"b", Reals(b, gen)}};
    const auto want = ir::Interpret(g, inputs);
    ASSERT_TRUE(want) << want.error().message;
    for (const int threads : {1, 3}) {
      const auto model = Model::Compile(g, {.threads = threads});
      ASSERT_TRUE(model);
      EXPECT_EQ(model->KernelOfEachStep(), std::vector<std::string>{"matmul_f32_batched"});
      const auto got = model->Run(inputs);
      ASSERT_TRUE(got) << got.error().message;
      ASSERT_EQ((*got)[0].shape(), (*want)[0].shape());
      // Five products of at most 1, each sum rounded.
      for (int64_t i = 0; i < (*want)[0].size(); ++i)
        ASSERT_NEAR((*got)[0].GetDouble(i), (*want)[0].GetDouble(i), 5 * 5 * std::ldexp(1, -24));
    }
  }
}

TEST(BatchedMatMul, ShapesThatDoNotFitAreRefused) {
  Graph g;
  const auto any = [](size_t rank) { return ir::SymShape(rank, ir::Dim::Unknown()); };
  const ir::ValueId x = g.AddInput("a", {DType::kF32, any(3)}), y = g.AddInput("b", {DType::kF32, any(3)});
  g.AddOutput("y", g.node(g.AddNode(Op::kMatMul, {x, y}, 1, {}, "product")).output());
  const auto model = Model::Compile(g, {.threads = 1});
  ASSERT_TRUE(model);
  std::mt19937 gen(1);
  for (const auto& [a, b] : {std::pair<Shape, Shape>{{2, 4, 5}, {3, 5, 6}}, {{2, 4, 5}, {2, 4, 6}}}) {
    const auto run = model->Run({{"a", Reals(a, gen)}, {"b", Reals(b, gen)}});
    ASSERT_FALSE(run);
    EXPECT_THAT(run.error().message, ::testing::HasSubstr("node 'product'"));
  }
}

// 2^34 matrices of one element out of two operands of 2^17: refused before anything is made for each of them.
TEST(BatchedMatMul, RepeatedOperandsMayNotBeTooMany) {
  Graph g;
  const int64_t many = int64_t{1} << 17;
  const ir::ValueId x = g.AddInput("a", {DType::kF32, ir::SymShape{many, 1, 1, 1}}),
                    y = g.AddInput("b", {DType::kF32, ir::SymShape{1, many, 1, 1}});
  g.AddOutput("y", g.node(g.AddNode(Op::kMatMul, {x, y}, 1, {}, "product")).output());
  const auto model = Model::Compile(g, {.threads = 1});
  ASSERT_TRUE(model);
  const auto run = model->Run(
      {{"a", Tensor::Zeros(DType::kF32, {many, 1, 1, 1})}, {"b", Tensor::Zeros(DType::kF32, {1, many, 1, 1})}});
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, ::testing::HasSubstr("beyond the limit"));
}

}  // namespace
}  // namespace octavo::runtime
