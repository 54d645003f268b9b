// A run that fails costs nothing but itself: its memory comes back, and the Session goes on.
#include <gtest/gtest.h>

#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

ValueId Make(Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}

// tanh of row `at` of x, by rows of x: fails where there is no such row, after steps that have their place in an arena.
Graph Rows() {
  Graph g;
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("n"), 4096}});
  const ValueId at = g.AddInput("at", {DType::kS64, ir::SymShape{1}});
  const ValueId soft = Make(g, Op::kSoftmax, {x}, {{"axis", int64_t{-1}}});
  const ValueId row = Make(g, Op::kGather, {Make(g, Op::kTanh, {soft}), at}, {{"axis", int64_t{0}}});
  g.AddOutput("y", Make(g, Op::kSoftmax, {row}, {{"axis", int64_t{-1}}}));
  return g;
}

TEST(Errors, ARunThatFailsGivesItsArenaBack) {
  const auto model = Model::Compile(Rows(), {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  const auto run = [&](int64_t at) {
    return model->Run({{"x", Tensor::Zeros(DType::kF32, {64, 4096})}, {"at", Tensor::S64({1}, {at})}});
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(run(5));
  const size_t idle = model->idle_bytes();
  EXPECT_GE(idle, size_t{64} * 4096 * 4);
  const auto want = run(5);
  for (int i = 0; i < 20; ++i) {
    const auto failed = run(1000);
    ASSERT_FALSE(failed);
    EXPECT_NE(failed.error().message.find("Gather"), std::string::npos) << failed.error().message;
    EXPECT_EQ(model->idle_bytes(), idle);
  }
  const auto again = run(5);
  ASSERT_TRUE(want && again);
  EXPECT_TRUE((*again)[0].SameBits((*want)[0]));
}

// [n,1] times [1,n].
Graph Square(int64_t max_memory) {
  Graph g;
  g.info.opsets[""] = 18;
  g.info.limits.max_memory = max_memory;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("n"), 1}});
  const ValueId y = g.AddInput("y", {DType::kF32, ir::SymShape{1, ir::Dim::Symbol("n")}});
  g.AddOutput("z", Make(g, Op::kTanh, {Make(g, Op::kMatMul, {x, y})}));
  return g;
}

TEST(Errors, ARunBeyondTheLimitOfMemoryIsASentence) {
  const auto model = Model::Compile(Square(20'000'000), {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  const auto run = [&](int64_t n) {
    return model->Run({{"x", Tensor::Zeros(DType::kF32, {n, 1})}, {"y", Tensor::Zeros(DType::kF32, {1, n})}});
  };
  for (const int64_t n : {1000, 1000, 100'000, 1000, 3000, 1000}) {
    const auto got = run(n);
    EXPECT_EQ(got.has_value(), n == 1000) << n;
    const std::string why = got ? "beyond the limit of 20 MB" : got.error().message;
    EXPECT_NE(why.find("beyond the limit of 20 MB"), std::string::npos) << why;
  }
}

TEST(Errors, CompilingBeyondTheLimitOfMemoryIsASentence) {
  Graph g;
  g.info.opsets[""] = 18;
  g.info.limits.max_memory = 1'000'000;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2}});
  const ValueId shape = g.AddConstant(Tensor::S64({1}, {4'000'000}));
  const ValueId many = Make(g, Op::kConstantOfShape, {shape});
  g.AddOutput("y", Make(g, Op::kMul, {x, Make(g, Op::kReduceMax, {many}, {{"keepdims", int64_t{0}}})}));
  const auto model = Model::Compile(std::move(g));
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("max_memory"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace octavo::runtime
