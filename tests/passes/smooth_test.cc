// Splitting channels changes the float meaning by rounding only, takes the range that it should, and stays away where it may not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/ir/verify.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kWidth = 200, kRows = 40, kOutlier = 7;
constexpr float kHowFar = 20;

class SmoothTest : public ::testing::Test {
 protected:
  Graph g;
  std::mt19937 rng{3};

  Tensor Random(ir::Shape shape, float spread = 1) {
    std::normal_distribution<float> normal(0, spread);
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = normal(rng);
    return t;
  }
  ValueId Node(Op op, std::vector<ValueId> in, const std::string& name, ir::Attrs attrs = {}) {
    const ValueId v = g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), name)).output();
    g.SetName(v, name);
    return v;
  }
  ValueId Weights(int64_t k, int64_t n) { return g.AddConstant(Random({k, n}, 0.1f)); }
  // With one column of the weights so large that the channel sticks out.
  ValueId Spiky(int64_t k, int64_t n) {
    Tensor t = Random({k, n}, 0.1f);
    for (int64_t i = 0; i < k; ++i) t.mutable_as<float>()[static_cast<size_t>(i * n + kOutlier)] *= kHowFar;
    return g.AddConstant(t);
  }
  ValueId SpikyNorm(ValueId x) {
    std::vector<float> gamma(kWidth, 1), beta(kWidth, 0.1f);
    gamma[kOutlier] = kHowFar;
    return Node(Op::kLayerNormalization,
                {x, g.AddConstant(Tensor::F32({kWidth}, gamma)), g.AddConstant(Tensor::F32({kWidth}, beta))}, "norm",
                {{"axis", int64_t{-1}}});
  }
  ValueId Input() { return g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("rows"), kWidth}}); }

  // Calibrates `taps` on `x`, runs the pass, and compares the outputs before and after.
  void Smooth(const Tensor& x, PassRun& context, bool changes) {
    g.info.opsets[""] = 20;
    Graph tapped = g;
    std::map<std::string, Tensor, std::less<>> values;
    std::vector<std::string> names;
    for (NodeId id : g.NodesInOrder()) {
      if (g.node(id).op == Op::kConstant) continue;
      names.push_back(g.value(g.node(id).output()).name);
      tapped.AddOutput("tap:" + names.back(), tapped.FindValue(names.back()));
    }
    const auto before = ir::Interpret(tapped, {{"x", x}});
    ASSERT_TRUE(before.has_value()) << before.error().message;
    const size_t own = g.outputs().size();
    for (size_t i = 0; i < names.size(); ++i) values[names[i]] = (*before)[own + i];
    context.evidence.channels = [&values](std::string_view name) {
      ChannelStats stats;
      const auto it = values.find(name);
      if (it == values.end()) return stats;
      const auto columns = static_cast<size_t>(it->second.shape().back());
      stats.rows = static_cast<size_t>(it->second.size()) / columns;
      stats.ranges.resize(columns, {INFINITY, -INFINITY});
      for (size_t i = 0; i < stats.rows * columns; ++i) {
        const float v = it->second.as<float>()[i];
        auto& [lo, hi] = stats.ranges[i % columns];
        lo = std::min(lo, v), hi = std::max(hi, v);
        stats.mean_square += double{v} * v / static_cast<double>(stats.rows * columns);
      }
      return stats;
    };
    ASSERT_TRUE(ir::Inference::Run(g).has_value());
    const auto changed = quantize::Smooth(g, context);
    ASSERT_TRUE(changed.has_value()) << changed.error().message;
    ASSERT_EQ(*changed, changes);
    ASSERT_TRUE(ir::Inference::Run(g).has_value());
    ASSERT_TRUE(ir::VerifyStatus(g).has_value());
    const auto after = ir::Interpret(g, {{"x", x}});
    ASSERT_TRUE(after.has_value()) << after.error().message;
    for (size_t i = 0; i < own; ++i) {
      ASSERT_EQ((*before)[i].shape(), (*after)[i].shape());
      for (int64_t j = 0; j < (*after)[i].size(); ++j)
        ASSERT_NEAR((*after)[i].GetDouble(j), (*before)[i].GetDouble(j), 2e-4) << j;
    }
  }
  int Count(Op op) const {
    return static_cast<int>(std::ranges::count(g.NodesInOrder(), op, [this](NodeId id) { return g.node(id).op; }));
  }
  int64_t ColumnsOf(const std::string& linear) const {
    for (NodeId id : g.NodesInOrder()) {
      const ir::Node& n = g.node(id);
      if (n.op == Op::kMatMul && std::ranges::find(n.origin, linear) != n.origin.end())
        return g.ConstantOf(n.inputs[1])->shape()[0];
      if (n.op == Op::kMatMul && n.name == linear) return g.ConstantOf(n.inputs[1])->shape()[0];
    }
    return -1;
  }
};

TEST_F(SmoothTest, BehindANormAChannelBecomesSeveralColumns) {
  const ValueId y = SpikyNorm(Input());
  g.AddOutput("a", Node(Op::kMatMul, {y, Weights(kWidth, 24)}, "first"));
  g.AddOutput("b", Node(Op::kMatMul, {y, Weights(kWidth, 16)}, "second"));
  g.AddOutput("norm", y);
  PassRun context;
  Smooth(Random({kRows, kWidth}), context, true);
  EXPECT_EQ(Count(Op::kLayerNormalization), 2) << "its other reader keeps the norm";
  ASSERT_EQ(Count(Op::kGather), 1) << "one for both readers";
  const int64_t columns = ColumnsOf("first");
  EXPECT_EQ(columns, ColumnsOf("second"));
  EXPECT_GT(columns, kWidth);
  EXPECT_LE(columns, kWidth + 8) << "four in a hundred";
  EXPECT_EQ(columns % 4, 0);
  ASSERT_EQ(context.own_params.size(), 1u);
  // Of normal numbers the largest of 40 is about 2; 20 times that, as one channel, would be a range of 80.
  EXPECT_LT(context.own_params.begin()->second.scale * 255, 24);
}

TEST_F(SmoothTest, BehindGeluTheLinearBeforeMakesTheColumns) {
  const ValueId h = Node(Op::kMatMul, {Input(), Spiky(kWidth, kWidth)}, "up");
  const ValueId b = Node(Op::kAdd, {h, g.AddConstant(Random({kWidth}, 0.1f))}, "biased");
  g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kGelu, {b}, "gelu"), Weights(kWidth, 24)}, "down"));
  PassRun context;
  Smooth(Random({kRows, kWidth}), context, true);
  EXPECT_EQ(Count(Op::kGather), 0);
  EXPECT_EQ(Count(Op::kMul), 1) << "the division";
  EXPECT_EQ(Count(Op::kMatMul), 2) << "the narrow one is gone";
  EXPECT_GT(ColumnsOf("down"), kWidth);
  EXPECT_EQ(ColumnsOf("down") % 4, 0);
}

// silu(x W1) * (x W2): the division goes into W2.
TEST_F(SmoothTest, BehindAGateTheDivisionIsInTheOtherLinear) {
  const ValueId x = Input();
  const ValueId gate = Node(Op::kMatMul, {x, Weights(kWidth, kWidth)}, "gate");
  const ValueId silu = Node(Op::kMul, {gate, Node(Op::kSigmoid, {gate}, "sigmoid")}, "silu");
  const ValueId up = Node(Op::kMatMul, {x, Spiky(kWidth, kWidth)}, "up");
  g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kMul, {silu, up}, "gated"), Weights(kWidth, 24)}, "down"));
  PassRun context;
  Smooth(Random({kRows, kWidth}), context, true);
  EXPECT_EQ(Count(Op::kMul), 2) << "none is new";
  EXPECT_EQ(Count(Op::kMatMul), 3);
  EXPECT_GT(ColumnsOf("down"), kWidth);
}

TEST_F(SmoothTest, BehindReluTheDivisionIsInTheLinearBefore) {
  const ValueId h = Node(Op::kMatMul, {Input(), Spiky(kWidth, kWidth)}, "up");
  g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kRelu, {h}, "relu"), Weights(kWidth, 24)}, "down"));
  PassRun context;
  Smooth(Random({kRows, kWidth}), context, true);
  EXPECT_EQ(Count(Op::kMul), 0);
  EXPECT_GT(ColumnsOf("down"), kWidth);
}

TEST_F(SmoothTest, WhatOthersReadOnTheWayStaysAsWide) {
  const ValueId h = Node(Op::kMatMul, {Input(), Spiky(kWidth, kWidth)}, "up");
  g.AddOutput("h", h);
  g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kGelu, {h}, "gelu"), Weights(kWidth, 24)}, "down"));
  PassRun context;
  Smooth(Random({kRows, kWidth}), context, true);
  EXPECT_EQ(ColumnsOf("down"), kWidth);
  EXPECT_EQ(Count(Op::kMul), 1);
}

// Nothing ends a stream of sums but the input.
TEST_F(SmoothTest, LongChainsStayAsWide) {
  ValueId h = Node(Op::kMatMul, {Input(), Spiky(kWidth, kWidth)}, "up");
  for (int i = 0; i < 20000; ++i)
    h = Node(Op::kAdd, {h, g.AddConstant(Tensor::F32({kWidth}, std::vector<float>(kWidth)))},
             "sum" + std::to_string(i));
  g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kMul, {h, h}, "square"), Weights(kWidth, 24)}, "down"));
  PassRun context;
  Smooth(Random({2, kWidth}), context, false);
}

TEST_F(SmoothTest, LinearsInFloatOrWithAScaleARowStay) {
  for (const bool is_float : {true, false}) {
    g = Graph();
    const ValueId y = SpikyNorm(Input());
    g.AddOutput("a", Node(Op::kMatMul, {y, Weights(kWidth, 24)}, "first"));
    PassRun context;
    (is_float ? context.keep_float : context.dynamic) = {"first"};
    Smooth(Random({kRows, kWidth}), context, false);
  }
}

TEST_F(SmoothTest, EvenChannelsStay) {
  const ValueId norm =
      Node(Op::kLayerNormalization, {Input(), g.AddConstant(Tensor::F32({kWidth}, std::vector<float>(kWidth, 1)))},
           "norm", {{"axis", int64_t{-1}}});
  g.AddOutput("a", Node(Op::kMatMul, {norm, Weights(kWidth, 24)}, "first"));
  Tensor even = Tensor::Empty(DType::kF32, {kRows, kWidth});
  for (int64_t i = 0; i < even.size(); ++i)
    even.mutable_as<float>()[static_cast<size_t>(i)] = i % 21 < 10 ? 1.0f : -1.0f;
  PassRun context;
  Smooth(even, context, false);
}

}  // namespace
}  // namespace octavo::passes::quantize
