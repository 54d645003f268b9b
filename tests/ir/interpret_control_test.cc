// Control flow, and what a run may rely on: types of outputs, bounds of memory, interrupts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/ir/memory.h"
#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Ints(std::vector<int64_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor::S64({n}, std::move(v));
}

// Body of a Loop: sum' = sum + step, where step is captured; gives the sum of every iteration too; stops at 5
// iterations.
GraphRef CountingBody() {
  Graph g;
  const ValueId i = g.AddInput("i", {DType::kS64, SymShape{}});
  g.AddInput("go", {DType::kBool, SymShape{}});
  const ValueId sum = g.AddInput("sum", {DType::kF32, SymShape{}});
  const ValueId step = g.AddInput("step", {DType::kF32, SymShape{}});
  const ValueId next = g.node(g.AddNode(Op::kAdd, {sum, step}, 1)).output();
  const ValueId more = g.node(g.AddNode(Op::kLess, {i, g.AddConstant(Tensor::ScalarS64(4))}, 1)).output();
  g.AddOutput("more", more);
  g.AddOutput("next", next);
  g.AddOutput("trace", next);
  return std::make_shared<const Graph>(std::move(g));
}

TEST(Loop, CarriesCapturesAndStacks) {
  const Attrs attrs{{"body", CountingBody()}, {"octavo_captures", int64_t{1}}};
  const Tensor go = Bool({}, {1});
  auto r = Eval(Op::kLoop, {Tensor::ScalarS64(3), go, Tensor::ScalarF32(1), Tensor::ScalarF32(10)}, attrs, 2);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[0].tensor.ToFloats(), std::vector<float>{31});
  EXPECT_THAT((*r)[1].tensor.ToFloats(), ElementsAre(11, 21, 31));
  r = Eval(Op::kLoop, {Tensor(), Tensor(), Tensor::ScalarF32(1), Tensor::ScalarF32(10)}, attrs,
           2);  // until the condition
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[1].tensor.shape(), (Shape{5}));
  EXPECT_THAT(ErrorOf(Op::kLoop, {Tensor(), Tensor(), Tensor::ScalarF32(1)}, attrs, 2), HasSubstr("body"));
}

TEST(If, RunsTheChosenBranchWithCaptures) {
  const auto branch = [](Op op) -> GraphRef {
    Graph g;
    const ValueId x = g.AddInput("x", {DType::kF32, SymShape{}});
    g.AddOutput("y", g.node(g.AddNode(op, {x}, 1)).output());
    return std::make_shared<const Graph>(std::move(g));
  };
  const Attrs attrs{
      {"then_branch", branch(Op::kNeg)}, {"else_branch", branch(Op::kAbs)}, {"octavo_captures", int64_t{1}}};
  EXPECT_EQ((*Eval(Op::kIf, {Bool({}, {1}), Tensor::ScalarF32(-3)}, attrs))[0].tensor.GetDouble(0), 3.0);
  EXPECT_EQ((*Eval(Op::kIf, {Bool({}, {0}), Tensor::ScalarF32(3)}, attrs))[0].tensor.GetDouble(0), 3.0);
  EXPECT_EQ((*Eval(Op::kIf, {Bool({}, {1}), Tensor::ScalarF32(3)}, attrs))[0].tensor.GetDouble(0), -3.0);
}

// A body of a Loop that carries `x` through `op` and stacks it.
GraphRef StackingBody(Op op, Attrs attrs = {}) {
  Graph g;
  g.AddInput("i", {});
  const ValueId go = g.AddInput("go", {}), x = g.AddInput("x", {});
  const ValueId y = g.node(g.AddNode(op, {x}, 1, std::move(attrs))).output();
  g.AddOutput("go", go);
  g.AddOutput("y", y);
  g.AddOutput("slice", y);
  return std::make_shared<const Graph>(std::move(g));
}

TEST(Loop, CarriesOneElementType) {
  const Attrs attrs{{"body", StackingBody(Op::kCast, {{"to", int64_t{7}}})}};
  EXPECT_THAT(ErrorOf(Op::kLoop, {Tensor::ScalarS64(2), Tensor(), Tensor::ScalarF32(1)}, attrs, 2),
              HasSubstr("carried value 0 changes from f32[] to s64[]"));
}

TEST(Loop, WithoutEndIsInterruptedOrRunsOutOfMemory) {
  Graph g;
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{}});
  const Node& n = g.node(g.AddNode(Op::kLoop, {{}, {}, x}, 2, {{"body", StackingBody(Op::kNeg)}}, "loop"));
  const RtValue in[] = {{}, {}, {Tensor::ScalarF32(1), nullptr}};
  int asked = 0;
  const auto stopped = EvalNode(g, n, in, [&] { return ++asked == 2; });
  ASSERT_FALSE(stopped);
  EXPECT_THAT(stopped.error().message, HasSubstr("interrupted"));
  EXPECT_EQ(asked, 2);
  const MemoryScope memory(size_t{16'000'000});
  const auto full = EvalNode(g, n, in);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("beyond the limit of 16 MB"));
}

// Whoever chose a kernel by the graph's types may trust them.
TEST(Interpret, OutputsAreWhatTheGraphSays) {
  const auto message = [](Type said, Shape shape = {2}) {
    Graph g;
    const ValueId x = g.AddInput("x", {DType::kF32, SymShape{2}});
    const NodeId id = g.AddNode(Op::kRelu, {x}, 1, {}, "relu");
    g.SetType(g.node(id).output(), std::move(said));
    const auto r = EvalNode(g, g.node(id), std::vector<RtValue>{{Tensor::F32(std::move(shape), {1, -1}), nullptr}});
    return r ? std::string() : r.error().message;
  };
  EXPECT_EQ(message({DType::kF32, SymShape{Dim::Symbol("n")}}), "");
  EXPECT_EQ(message({DType::kF32, SymShape{2}}, {1, 2}), "");  // an operand of another rank than the graph's
  EXPECT_THAT(message({DType::kU8, std::nullopt}), HasSubstr("output 0 is f32[2], but the graph says u8[*]"));
  EXPECT_THAT(message({DType::kF32, SymShape{1, 2}}), HasSubstr("the graph says f32[1,2]"));
}

// What is declared costs nothing before it is allowed: texts, dims beside a 0, work memory.
TEST(Interpret, MemoryIsBoundedByItsAccount) {
  const Tensor image = Tensor::Zeros(DType::kF32, {1, 1, 200, 200});
  const Tensor kernel = Tensor::Zeros(DType::kF32, {1, 1, 100, 100}), q = Tensor::Zeros(DType::kF32, {1, 1, 2000, 1});
  const MemoryScope memory(size_t{1} << 20);
  const Tensor word = Tensor::Strings({1}, {std::string(1000, 'x')});
  EXPECT_THAT(ErrorOf(Op::kConstantOfShape, {Ints({1 << 20})}, {{"value", word}}), HasSubstr("beyond the limit"));
  EXPECT_THAT(ErrorOf(Op::kExpand, {word, Ints({10000})}), HasSubstr("beyond the limit"));
  EXPECT_THAT(ErrorOf(Op::kConstantOfShape, {Ints({1 << 22, 0})}), HasSubstr("beyond the limit"));
  EXPECT_THAT(ErrorOf(Op::kConstantOfShape, {Ints({int64_t{1} << 62, 0})}), HasSubstr("64 GB"));
  EXPECT_THAT(ErrorOf(Op::kRange, {Tensor::ScalarS64(0), Tensor::ScalarS64(1 << 20), Tensor::ScalarS64(1)}),
              HasSubstr("beyond the limit"));
  EXPECT_THAT(ErrorOf(Op::kConv, {image, kernel}), HasSubstr("beyond the limit"));
  EXPECT_THAT(ErrorOf(Op::kAttention, {q, q, q}), HasSubstr("beyond the limit"));
}

}  // namespace
}  // namespace octavo::ir::testing
