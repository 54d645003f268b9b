// Causal and window masks as exporters write them become attributes: same bits before and after, and what is not exact stays.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {
namespace {

using ir::Dim;
using ir::DType;
using ir::Tensor;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInf = std::numeric_limits<float>::infinity();

// q [B,2,S,4] at the positions past .. past + S - 1, k and v [B,2,T,4].
struct Model {
  explicit Model(bool with_past) {
    g.info.opsets[""] = 18;
    const Dim b = Dim::Symbol("b"), s = Dim::Symbol("s"), p = Dim::Symbol("p");
    q = g.AddInput("q", {DType::kF32, ir::SymShape{b, 2, s, 4}});
    k = g.AddInput("k", {DType::kF32, ir::SymShape{b, 2, s, 4}});
    if (with_past) {
      const ValueId before = g.AddInput("past", {DType::kF32, ir::SymShape{b, 2, p, 4}});
      k = Make(Op::kConcat, {before, k}, {{"axis", int64_t{2}}});
    }
    padding = g.AddInput("padding", {DType::kBool, ir::SymShape{b, 1, 1, with_past ? p + s : s}});
    const ValueId zero = Whole(0), one = Whole(1), queries = Length(q), keys = Length(k);
    const ValueId past = with_past ? Make(Op::kSub, {keys, queries}) : zero;
    const ValueId rows = Make(Op::kRange, {past, Make(Op::kAdd, {past, queries}), one});
    i = Make(Op::kUnsqueeze, {rows, Ints({0, 1, 3})});
    j = Make(Op::kUnsqueeze, {Make(Op::kRange, {zero, keys, one}), Ints({0, 1, 2})});
  }

  ValueId Make(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  }
  ValueId Whole(int64_t v) { return g.AddConstant(Tensor::S64({}, {v})); }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId Scalar(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }
  ValueId Length(ValueId v) {
    return Make(Op::kSqueeze, {Make(Op::kShape, {v}, {{"end", int64_t{3}}, {"start", int64_t{2}}}), Ints({0})});
  }
  ValueId Where(ValueId c, float low) { return Make(Op::kWhere, {c, Scalar(0), Scalar(low)}); }
  void Attend(ValueId mask, ValueId keep = {}) {
    std::vector<ValueId> in{q, k, k, mask, keep};
    while (!in.back().valid()) in.pop_back();
    g.AddOutput("y", Make(Op::kSdpa, std::move(in),
                          {{"num_heads", int64_t{2}},
                           {"kv_num_heads", int64_t{2}},
                           {"head_dim", int64_t{4}},
                           {"v_head_dim", int64_t{4}},
                           {"scale", 0.5f}}));
  }

  Graph g;
  ValueId q, k, padding, i, j;
};

// The attention after the pass; the same bits for two lengths.
Node Lifted(const Graph& graph, bool with_past) {
  Graph after = graph;
  EXPECT_TRUE(ir::Inference::Run(after).has_value());
  PassRun context;
  const auto changed = FuseWindows(after, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  std::mt19937 gen(5);
  std::normal_distribution<float> normal;
  for (const int64_t s : {1, 7, 30}) {
    const int64_t p = with_past ? 9 : 0;
    const auto floats = [&](int64_t rows) {
      std::vector<float> x(static_cast<size_t>(3 * 2 * rows * 4));
      for (float& f : x) f = normal(gen);
      return Tensor::F32({3, 2, rows, 4}, x);
    };
    std::vector<uint8_t> keep(static_cast<size_t>(3 * (s + p)));
    for (size_t n = 0; n < keep.size(); ++n)
      keep[n] = n < static_cast<size_t>(s + p) ? n % 5 != 0 : 1;  // the first row may be lost
    ir::TensorMap inputs{
        {"q", floats(s)}, {"k", floats(s)}, {"padding", Tensor::Of<uint8_t>(DType::kBool, {3, 1, 1, s + p}, keep)}};
    if (with_past) inputs["past"] = floats(p);
    const auto want = ir::Interpret(graph, inputs), got = ir::Interpret(after, inputs);
    EXPECT_TRUE(want.has_value() && got.has_value());
    if (want && got) {
      EXPECT_TRUE((*want)[0].SameBits((*got)[0])) << "length " << s;
    }
  }
  for (NodeId id : after.NodesInOrder()) {
    if (after.node(id).op == Op::kSdpa) return after.node(id);
  }
  ADD_FAILURE() << "no attention left";
  return {};
}

void ExpectWindow(const Node& n, int64_t left, int64_t right, int64_t bottom_right, float low) {
  EXPECT_EQ(n.attrs.Int("window_left", -1), left);
  EXPECT_EQ(n.attrs.Int("window_right", -1), right);
  EXPECT_EQ(n.attrs.Int("bottom_right", 0), bottom_right);
  EXPECT_EQ(n.attrs.Float("hidden_value", -kInf), low);
}

TEST(Windows, CausalMaskGoes) {
  Model m(false);
  m.Attend(m.Where(m.Make(Op::kLessOrEqual, {m.j, m.i}), -kInf));
  const Node n = Lifted(m.g, false);
  ExpectWindow(n, -1, 0, 0, -kInf);
  EXPECT_FALSE(n.input(3).valid());
}

TEST(Windows, SlidingWindowLeavesThePadding) {
  for (const bool past : {false, true}) {
    Model m(past);
    const ValueId near = m.Make(Op::kGreater, {m.j, m.Make(Op::kSub, {m.i, m.Whole(8)})});
    const ValueId seen = m.Make(Op::kAnd, {m.Make(Op::kAnd, {near, m.Make(Op::kLessOrEqual, {m.j, m.i})}), m.padding});
    m.Attend(m.Where(seen, kLowest));
    const Node n = Lifted(m.g, past);
    ExpectWindow(n, 7, 0, past ? 1 : 0, kLowest);
    EXPECT_TRUE(n.input(3).valid());
  }
}

TEST(Windows, AxesInFrontOfAJoinedMask) {
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, 1}, {1, 0}, {-4, -3}}) {
    Model m(true);
    const auto flat = [&](ValueId v, int64_t axis) {  // [S,1] and [T]
      return m.Make(Op::kSqueeze, {v, axis == 0 ? m.Ints({0, 1}) : m.Ints({0, 1, 2})});
    };
    const ValueId i = flat(m.i, 0), j = flat(m.j, 1);
    const ValueId near = m.Make(Op::kGreater, {j, m.Make(Op::kSub, {i, m.Whole(8)})});
    const ValueId seen = m.Make(Op::kAnd, {near, m.Make(Op::kLessOrEqual, {j, i})});
    m.Attend(m.Where(m.Make(Op::kAnd, {m.Make(Op::kUnsqueeze, {seen, m.Ints(std::vector<int64_t>(axes))}), m.padding}),
                     kLowest));
    const Node n = Lifted(m.g, true);
    ExpectWindow(n, 7, 0, 1, kLowest);
    EXPECT_TRUE(n.input(3).valid());
  }
}

TEST(Windows, TheOtherWayRound) {  // hidden = not(query >= key) or not padding
  Model m(true);
  const ValueId late = m.Make(Op::kNot, {m.Make(Op::kGreaterOrEqual, {m.i, m.j})});
  const ValueId hidden = m.Make(Op::kOr, {late, m.Make(Op::kNot, {m.padding})});
  m.Attend(m.Make(Op::kWhere, {hidden, m.Scalar(kLowest), m.Scalar(0)}));
  ExpectWindow(Lifted(m.g, true), -1, 0, 1, kLowest);
}

TEST(Windows, TriangleOfOnes) {
  Model m(false);
  const ValueId s = m.Make(Op::kUnsqueeze, {m.Length(m.q), m.Ints({0})});
  const ValueId ones = m.Make(Op::kExpand, {m.Scalar(1), m.Make(Op::kConcat, {s, s}, {{"axis", int64_t{0}}})});
  const ValueId triangle = m.Make(Op::kTrilu, {ones}, {{"upper", int64_t{0}}});
  m.Attend(m.Make(Op::kWhere, {m.Make(Op::kEqual, {triangle, m.Scalar(0)}), m.Scalar(-kInf), m.Scalar(0)}));
  ExpectWindow(Lifted(m.g, false), -1, 0, 0, -kInf);
}

TEST(Windows, BoundsOfABoolMask) {
  Model m(false);
  m.Attend({}, m.Make(Op::kAnd, {m.padding, m.Make(Op::kLess, {m.j, m.Make(Op::kAdd, {m.i, m.Whole(3)})})}));
  const Node n = Lifted(m.g, false);
  ExpectWindow(n, -1, 2, 0, -kInf);
  EXPECT_TRUE(n.input(4).valid());
}

TEST(Windows, SumOfTwoMasks) {
  Model m(false);
  const ValueId causal = m.Where(m.Make(Op::kLessOrEqual, {m.j, m.i}), -kInf);
  m.Attend(m.Make(Op::kAdd, {causal, m.Where(m.padding, -kInf)}));
  const Node n = Lifted(m.g, false);
  ExpectWindow(n, -1, 0, 0, -kInf);
  EXPECT_TRUE(n.input(3).valid());
}

TEST(Windows, WhatIsNotExactStays) {
  const auto stays = [](Model& m, ValueId mask) {
    m.Attend(mask);
    const Node n = Lifted(m.g, false);
    ExpectWindow(n, -1, -1, 0, -kInf);
  };
  Model low(false);  // -10000 + s depends on s
  stays(low, low.Where(low.Make(Op::kLessOrEqual, {low.j, low.i}), -1e4f));
  Model twice(false);  // two lowest numbers make -inf
  const ValueId causal = twice.Where(twice.Make(Op::kLessOrEqual, {twice.j, twice.i}), kLowest);
  stays(twice, twice.Make(Op::kAdd, {causal, twice.Where(twice.padding, kLowest)}));
  Model doubled(false);  // key <= 2 query is no window
  stays(doubled,
        doubled.Where(
            doubled.Make(Op::kLessOrEqual, {doubled.j, doubled.Make(Op::kMul, {doubled.i, doubled.Whole(2)})}), -kInf));
  Model one(false);  // the positions of the queries say nothing of the keys
  stays(one, one.Where(one.Make(Op::kGreaterOrEqual, {one.i, one.Whole(0)}), -kInf));
}

}  // namespace
}  // namespace octavo::passes::fusions
