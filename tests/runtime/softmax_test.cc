// Softmax and LogSoftmax by the step, along every axis, with the interpreter's bits.
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

void Agrees(Op op, const Shape& x, int64_t axis, bool runs = true) {
  SCOPED_TRACE(ir::ToString(x) + " along " + std::to_string(axis));
  std::mt19937 gen(20261128);
  Graph g;
  const ValueId in = g.AddInput("x", {DType::kF32, std::nullopt});
  g.AddOutput("y", g.node(g.AddNode(op, {in}, 1, {{"axis", axis}}, "soft")).output());
  Tensor t = Tensor::Empty(DType::kF32, x);
  for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-9, 9)(gen);
  const ir::TensorMap inputs{{"x", t}};
  const auto want = ir::Interpret(g, inputs);
  ASSERT_EQ(want.has_value(), runs);
  for (const int threads : {1, 3}) {
    const auto model = Model::Compile(g, {.threads = threads});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_THAT(model->KernelOfEachStep(),
                ::testing::ElementsAre(::testing::StartsWith(op == Op::kSoftmax ? "softmax " : "log_softmax ")));
    const auto got = model->Run(inputs);
    ASSERT_EQ(got.has_value(), runs);
    if (runs) {
      EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
    } else {
      EXPECT_THAT(got.error().message, ::testing::HasSubstr(want.error().message));
    }
  }
}

TEST(Softmax, HasTheBitsOfTheInterpreterAlongEveryAxis) {
  for (const Op op : {Op::kSoftmax, Op::kLogSoftmax}) {
    for (const Shape& x : {Shape{1}, Shape{40}, Shape{3, 17}, Shape{2, 5, 33}, Shape{2, 130, 3, 16}, Shape{4, 0, 3}}) {
      const auto rank = static_cast<int64_t>(x.size());
      for (int64_t axis = -rank; axis < rank; ++axis) Agrees(op, x, axis);
    }
  }
}

TEST(Softmax, AnAxisThatIsNotThereSaysWhy) {
  Agrees(Op::kSoftmax, {3, 4}, 2, false);
  Agrees(Op::kLogSoftmax, {3, 4}, -3, false);
}

}  // namespace
}  // namespace octavo::runtime
