// InstanceNormalization and GroupNormalization by the step, with the interpreter's bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

Tensor Reals(const Shape& shape, std::mt19937& gen) {
  Tensor t = Tensor::Empty(DType::kF32, shape);
  for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 3)(gen);
  return t;
}

// scale and bias have `parameters` numbers.
void Agrees(Op op, const Shape& x, int64_t groups, int64_t parameters, bool by_kernel = true) {
  SCOPED_TRACE(ir::ToString(x) + " in " + std::to_string(groups));
  std::mt19937 gen(20261128);
  Graph g;
  const ValueId in = g.AddInput("x", {DType::kF32, ir::SymShape(x.size(), ir::Dim::Unknown())});
  const ValueId scale = g.AddInput("scale", {DType::kF32, ir::SymShape{ir::Dim::Unknown()}}),
                bias = g.AddInput("bias", {DType::kF32, ir::SymShape{ir::Dim::Unknown()}});
  ir::Attrs attrs{{"epsilon", 1e-3f}};
  if (op == Op::kGroupNormalization) attrs.Set("num_groups", groups);
  g.AddOutput("y", g.node(g.AddNode(op, {in, scale, bias}, 1, attrs, "norm")).output());
  const ir::TensorMap inputs{
      {"x", Reals(x, gen)}, {"scale", Reals({parameters}, gen)}, {"bias", Reals({parameters}, gen)}};
  const auto want = ir::Interpret(g, inputs);
  for (const int threads : {1, 3}) {
    const auto model = Model::Compile(g, {.threads = threads});
    ASSERT_TRUE(model) << model.error().message;
    const std::string kernel = op == Op::kGroupNormalization ? "group_norm" : "instance_norm";
    EXPECT_EQ(model->KernelOfEachStep(), std::vector<std::string>{kernel});
    const auto got = model->Run(inputs);
    ASSERT_EQ(got.has_value(), want.has_value());
    if (!want) {
      EXPECT_THAT(got.error().message, ::testing::HasSubstr(want.error().message));
      continue;
    }
    EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
  }
  EXPECT_EQ(by_kernel, want.has_value());
}

TEST(GroupNorm, HasTheBitsOfTheInterpreter) {
  for (const Shape& x : {Shape{2, 6, 5}, Shape{1, 6, 7, 9}, Shape{3, 6, 1, 1}, Shape{2, 6, 130, 150}, Shape{0, 6, 4}}) {
    Agrees(Op::kInstanceNormalization, x, 6, 6);
    Agrees(Op::kGroupNormalization, x, 3, 6);
    Agrees(Op::kGroupNormalization, x, 1, 6);
  }
  Agrees(Op::kGroupNormalization, {2, 6, 4, 4}, 3, 3);  // a scale for each group
}

TEST(GroupNorm, WhatDoesNotFitSaysWhy) {
  Agrees(Op::kGroupNormalization, {2, 6, 4}, 4, 6, false);
  Agrees(Op::kGroupNormalization, {2, 6, 4}, 3, 5, false);
  Agrees(Op::kInstanceNormalization, {2, 6, 4}, 6, 5, false);
}

}  // namespace
}  // namespace octavo::runtime
