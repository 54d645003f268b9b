#include "octavo/ir/graph.h"

#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"

namespace octavo::ir {
namespace {

Type F32(int64_t n) { return {DType::kF32, SymShape{n}}; }

TEST(Graph, NamesAreUnique) {
  Graph g;
  const ValueId a = g.AddInput("x", F32(1));
  const ValueId b = g.AddInput("x", F32(1));
  EXPECT_EQ(g.value(a).name, "x");
  EXPECT_EQ(g.value(b).name, "x_1");
  EXPECT_EQ(g.FindValue("x_1"), b);
  EXPECT_FALSE(g.FindValue("y").valid());
  g.SetName(b, "x");
  EXPECT_NE(g.value(b).name, "x");
  g.SetName(a, "free");
  g.SetName(b, "x");
  EXPECT_EQ(g.FindValue("x"), b);
  EXPECT_EQ(g.FindValue("free"), a);
}

TEST(Graph, UsesFollowEveryEdit) {
  Graph g;
  const ValueId x = g.AddInput("x", F32(1));
  const ValueId y = g.AddInput("y", F32(1));
  const NodeId add = g.AddNode(Op::kAdd, {x, x}, 1, {}, "add");
  const ValueId sum = g.node(add).outputs[0];
  EXPECT_EQ(g.value(x).uses, (std::vector<Use>{{add, 0}, {add, 1}}));
  EXPECT_FALSE(g.HasOneUse(x));
  g.SetInput(add, 1, y);
  EXPECT_TRUE(g.HasOneUse(x));
  g.AddOutput("out", sum);
  EXPECT_FALSE(g.HasOneUse(sum));
  EXPECT_TRUE(g.IsGraphOutput(sum));
  const NodeId relu = g.AddNode(Op::kRelu, {sum}, 1, {}, "relu");
  g.ReplaceAllUses(sum, y);
  EXPECT_EQ(g.outputs()[0].value, y);
  EXPECT_EQ(g.node(relu).input(0), y);
  EXPECT_EQ(g.value(y).uses, (std::vector<Use>{{add, 1}, {relu, 0}}));
  g.Erase(add);
  EXPECT_FALSE(g.IsAlive(add));
  EXPECT_FALSE(g.IsAlive(sum));
  EXPECT_TRUE(g.value(x).uses.empty());
  EXPECT_EQ(g.value(y).uses, (std::vector<Use>{{relu, 0}}));
  EXPECT_EQ(g.node_count(), 1u);
}

TEST(Graph, OrderIsKept) {
  Graph g;
  const ValueId x = g.AddInput("x", F32(1));
  const NodeId a = g.AddNode(Op::kRelu, {x}, 1);
  const NodeId c = g.AddNode(Op::kRelu, {x}, 1);
  EXPECT_TRUE(g.Before(a, c));
  std::vector<NodeId> expected = {a};
  for (int i = 0; i < 60; ++i) expected.push_back(g.AddNode(Op::kRelu, {x}, 1, {}, {}, c));  // more than the gap halves
  expected.push_back(c);
  EXPECT_EQ(g.NodesInOrder(), expected);
  for (size_t i = 1; i < expected.size(); ++i) EXPECT_TRUE(g.Before(expected[i - 1], expected[i])) << i;
  g.MoveBefore(c, a);
  EXPECT_EQ(g.first(), c);
  EXPECT_TRUE(g.Before(c, a));
  g.MoveBefore(c, {});
  EXPECT_EQ(g.last(), c);
  EXPECT_TRUE(g.Before(a, c));
}

TEST(Graph, SortsTopologicallyAndSeesCycles) {
  const unsigned seed = 7;
  std::mt19937 rng(seed);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    Graph g;
    std::vector<ValueId> values = {g.AddInput("x", F32(1))};
    std::vector<NodeId> nodes;
    for (int i = 0; i < 30; ++i) {
      nodes.push_back(g.AddNode(Op::kAdd, {values[rng() % values.size()], values[rng() % values.size()]}, 1));
      values.push_back(g.node(nodes.back()).outputs[0]);
    }
    g.AddOutput("y", values.back());
    for (int i = 0; i < 40; ++i) g.MoveBefore(nodes[rng() % nodes.size()], nodes[rng() % nodes.size()]);
    ASSERT_TRUE(g.SortTopologically());
    EXPECT_TRUE(Verify(g).empty()) << VerifyStatus(g).error().message;
    const std::string once = ToText(g);
    ASSERT_TRUE(g.SortTopologically());
    EXPECT_EQ(ToText(g), once);  // a sorted graph stays as it is
    g.SetInput(nodes[0], 0, values.back());
    const bool has_cycle = !g.SortTopologically();
    // The last node need not depend on the first, so there may be none; then the order must be legal.
    if (!has_cycle) {
      EXPECT_TRUE(Verify(g).empty());
    }
  }
  Graph loop;
  const NodeId a = loop.AddNode(Op::kRelu, {ValueId{}}, 1);
  const NodeId b = loop.AddNode(Op::kRelu, {loop.node(a).outputs[0]}, 1);
  loop.SetInput(a, 0, loop.node(b).outputs[0]);
  const auto before = loop.NodesInOrder();
  EXPECT_FALSE(loop.SortTopologically());
  EXPECT_EQ(loop.NodesInOrder(), before);
}

TEST(Graph, CopiesAreIndependentAndShareTensors) {
  Graph g;
  const ValueId c = g.AddConstant(Tensor::F32({2}, {1, 2}), "c");
  g.AddOutput("y", c);
  Graph copy = g;
  EXPECT_EQ(copy.ConstantOf(c)->data(), g.ConstantOf(c)->data());
  const NodeId relu = copy.AddNode(Op::kRelu, {c}, 1);
  copy.SetOutput(0, copy.node(relu).outputs[0]);
  EXPECT_EQ(g.node_count(), 1u);
  EXPECT_EQ(g.outputs()[0].value, c);
  EXPECT_TRUE(g.value(c).uses.empty());
  EXPECT_TRUE(Verify(copy).empty());
  EXPECT_EQ(g.ConstantOf(copy.node(relu).input(0)), g.ConstantOf(c));
}

TEST(Graph, PrintsTypes) {
  EXPECT_EQ(ToString(Type{}), "?");
  EXPECT_EQ(ToString(Type{DType::kF32, std::nullopt}), "f32[*]");
  EXPECT_EQ(ToString(Type{DType::kE4M3FN, SymShape{Dim::Symbol("batch"), Dim()}}), "e4m3fn[batch,?]");
}

TEST(GraphDeathTest, StaleHandlesStopWithASentence) {
  Graph g;
  const NodeId a = g.AddNode(Op::kConstant, {}, 1);
  g.Erase(a);
  EXPECT_THROW(g.node(a), CheckError);
  EXPECT_THROW(g.value(ValueId{7}), CheckError);
}

}  // namespace
}  // namespace octavo::ir
