// What Compare calls a difference, and what it excuses: noise, and numbers whose square float32 cannot hold. Nothing else.
#include "octavo/fuzz/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ir/interpret.h"
#include "octavo/quant/numeric/float16.h"

namespace octavo::fuzz {
namespace {

using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Graphs of one input "x", four numbers.
struct Case {
  ir::DType type = ir::DType::kF32;  // or kF16
  Graph graph = {};
  std::vector<float> x = {1, -2, 0.5f, 3};

  Tensor Make(const std::vector<float>& v) const {
    const auto size = static_cast<int64_t>(v.size());
    if (type == ir::DType::kF32) return Tensor::F32({size}, v);
    std::vector<uint16_t> halves(v.size());
    std::ranges::transform(v, halves.begin(), quant::F32ToF16);
    return Tensor::Of<uint16_t>(type, {size}, halves);
  }
  ValueId Input() { return graph.AddInput("x", {type, ir::SymShape{4}}); }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return graph.node(graph.AddNode(op, std::move(in), 1, std::move(attrs), "n")).output();
  }
  ValueId Numbers(const std::vector<float>& v) { return graph.AddConstant(Make(v)); }
  ir::Result<Tensors> Run(const Graph& g) const { return ir::Interpret(g, {{"x", Make(x)}}); }
  Tensors Truth() const { return Run(graph).value(); }
  Verdict Judge(const Tensors& got) const {
    std::string detail;
    const Verdict verdict = Compare(graph, Truth(), got, false, [&](const Graph& g) { return Run(g); }, &detail);
    EXPECT_EQ(detail.empty(), verdict != Verdict::kApart) << detail;
    return verdict;
  }
  // Of the only output, where element `i` is `v`.
  Verdict JudgeWith(size_t i, float v) const {
    std::vector<float> got = Truth()[0].ToFloats();
    got[i] = v;
    return Judge({Make(got)});
  }
};

// x * scales, one after the other.
Case Scaled(const std::vector<std::vector<float>>& scales, ir::DType type = ir::DType::kF32) {
  Case c{.type = type};
  ValueId v = c.Input();
  for (const auto& s : scales) v = c.Node(Op::kMul, {v, c.Numbers(s)});
  c.graph.AddOutput("y", v);
  return c;
}

TEST(Compare, OrdinaryNumbersAreStrict) {
  const Case c = Scaled({{0.3f, 0.3f, 0.3f, 0.3f}, {3, 3, 3, 3}});
  const float y = c.Truth()[0].ToFloats()[0];
  EXPECT_EQ(c.Judge(c.Truth()), Verdict::kEqual);
  EXPECT_EQ(c.JudgeWith(0, std::nextafter(y, 2.0f)), Verdict::kWithin);
  EXPECT_EQ(c.JudgeWith(0, y * 1.001f), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(0, kInfinity), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(0, kNaN), Verdict::kApart);
  EXPECT_EQ(c.Judge({}), Verdict::kApart);
}

TEST(Compare, BitsOfNaNAreNobodys) {
  const auto one = [](float x) { return Tensors{ir::Tensor::F32({1}, {x})}; };
  EXPECT_TRUE(SameBits(one(kNaN), one(-kNaN)));
  EXPECT_FALSE(SameBits(one(0.0f), one(-0.0f)));
  EXPECT_FALSE(SameBits(one(kNaN), one(1)));
}

// Element 0 overflows on its way; the others must still be right.
TEST(Compare, AnElementThatOverflowsIsExcusedAlone) {
  const Case c = Scaled({{3e38f, 2, 2, 2}, {1e-38f, 1, 1, 1}});
  EXPECT_EQ(c.JudgeWith(0, kInfinity), Verdict::kUnstable);
  EXPECT_EQ(c.JudgeWith(0, kNaN), Verdict::kUnstable);
  EXPECT_EQ(c.JudgeWith(1, kInfinity), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(1, -4.004f), Verdict::kApart);
}

// An infinity that is really there, and is none in another order of the products.
TEST(Compare, TruthMayOverflowToo) {
  const Case c = Scaled({{3e38f, 2, 2, 2}, {10, 10, 10, 10}, {1e-30f, 1, 1, 1}});
  EXPECT_TRUE(std::isinf(c.Truth()[0].ToFloats()[0]));
  EXPECT_EQ(c.JudgeWith(0, 3e9f), Verdict::kUnstable);
  EXPECT_EQ(c.JudgeWith(2, 3e9f), Verdict::kApart);
}

TEST(Compare, AnInfiniteWeightIsExcused) {
  const Case c = Scaled({{kInfinity, 2, 2, 2}});
  EXPECT_EQ(c.JudgeWith(0, kNaN), Verdict::kUnstable);
  EXPECT_EQ(c.JudgeWith(1, kNaN), Verdict::kApart);
}

TEST(Compare, NaNInAWeightIsNoExcuse) {
  const Case c = Scaled({{kNaN, 2, 2, 2}});
  EXPECT_EQ(c.JudgeWith(0, 0), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(1, kNaN), Verdict::kApart);
}

// Numbers below kHuge are strict however large.
TEST(Compare, LargeIsNotHuge) {
  const Case c = Scaled({{1e18f, 1e18f, 1e18f, 1e18f}});
  EXPECT_EQ(c.JudgeWith(0, kInfinity), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(0, 1.001e18f), Verdict::kApart);
}

// A graph of float16 overflows where the fused one, in float32, does not.
TEST(Compare, Float16OverflowsEarlier) {
  const Case c = Scaled({{60000, 2, 2, 2}, {2, 1, 1, 1}, {0.001f, 1, 1, 1}}, ir::DType::kF16);
  EXPECT_TRUE(std::isinf(c.Truth()[0].ToFloats()[0]));
  EXPECT_EQ(c.JudgeWith(0, 120), Verdict::kUnstable);
  EXPECT_EQ(c.JudgeWith(1, kInfinity), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(1, -4.5f), Verdict::kApart);
}

// Rounding makes another code of a value on an edge; the noise must find that, whichever way it is. 3 is far from one.
TEST(Compare, ACodeOnAnEdgeMayFallOver) {
  for (const float x : {0.5f, 1.5f, -0.5f, -1.5f, 2.5f}) {
    Case c;
    c.x = {x, 3, 3, 3};
    const ValueId scale = c.graph.AddConstant(Tensor::ScalarF32(1));
    const ValueId zero = c.graph.AddConstant(Tensor::Zeros(ir::DType::kS8, {}));
    const ValueId codes = c.Node(Op::kQuantizeLinear, {c.Node(Op::kMul, {c.Input(), c.Numbers({1})}), scale, zero});
    c.graph.AddOutput("y", c.Node(Op::kDequantizeLinear, {codes, scale, zero}));
    const float y = c.Truth()[0].ToFloats()[0];
    EXPECT_EQ(c.JudgeWith(0, y > x ? y - 1 : y + 1), Verdict::kUnstable) << x;
  }
  Case c;
  c.graph.AddOutput("y", c.Node(Op::kRound, {c.Input()}));
  EXPECT_EQ(c.JudgeWith(3, 4), Verdict::kUnstable);  // its third element is 0.5
  c = {};
  c.x = {1, 3, 3, 3};
  c.graph.AddOutput("y", c.Node(Op::kRound, {c.Input()}));
  EXPECT_EQ(c.JudgeWith(0, 2), Verdict::kApart);
}

// As exporters mask scores: nothing behind the Softmax hangs on the size of the lowest float.
TEST(Compare, AMaskIsNoExcuse) {
  Case c;
  c.graph.AddOutput("y", c.Node(Op::kSoftmax, {c.Node(Op::kAdd, {c.Input(), c.Numbers({0, 0, 0, kLowest})})}));
  EXPECT_EQ(c.JudgeWith(0, 0.5f), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(3, 0.5f), Verdict::kApart);
  EXPECT_EQ(c.JudgeWith(3, kNaN), Verdict::kApart);
}

// The second output is judged whatever the first was excused for.
TEST(Compare, EveryOutputIsJudged) {
  Case c = Scaled({{kInfinity, 2, 2, 2}});
  c.graph.AddOutput("z", c.Node(Op::kAdd, {c.graph.inputs()[0], c.Numbers({1, 1, 1, 1})}));
  const Tensors truth = c.Truth();
  EXPECT_EQ(c.Judge({Tensor::F32({4}, {kNaN, -4, 1, 6}), truth[1]}), Verdict::kUnstable);
  EXPECT_EQ(c.Judge({Tensor::F32({4}, {kNaN, -4, 1, 6}), Tensor::F32({4}, {2, -1, 1.5f, 4.1f})}), Verdict::kApart);
}

// A score that cancels to 0 in another order is NaN where it is divided by 0; one that is divided by 1 is a score.
TEST(Compare, AQuotientByZeroIsExcusedAlone) {
  Case c;
  c.graph.AddOutput("y", c.Node(Op::kTanh, {c.Node(Op::kDiv, {c.Input(), c.Numbers({0, 1, 1, 1})})}));
  EXPECT_EQ(c.Truth()[0].ToFloats()[0], 1);
  EXPECT_EQ(c.JudgeWith(0, kNaN), Verdict::kUnstable);
  EXPECT_EQ(c.JudgeWith(1, kNaN), Verdict::kApart);
}

TEST(Compare, AHugeAttributeIsExcused) {
  for (const float alpha : {3.4e38f, 2.0f}) {
    Case c;
    c.graph.AddOutput("y", c.Node(Op::kLeakyRelu, {c.Input()}, {{"alpha", alpha}}));
    EXPECT_EQ(c.JudgeWith(1, -3e38f), alpha > 2 ? Verdict::kUnstable : Verdict::kApart);  // the only one below 0
    EXPECT_EQ(c.JudgeWith(0, 5), Verdict::kApart);
  }
}

// bf16 has steps of 2 at 448, which a fused graph, in float32, does not round to.
TEST(Compare, BFloat16RoundsMore) {
  Case c;
  const auto cast = [&](ValueId v, ir::DType to) { return c.Node(Op::kCast, {v}, {{"to", static_cast<int64_t>(to)}}); };
  const auto coarse = [&](ValueId v) { return cast(v, ir::DType::kBF16); };
  const ValueId sum = c.Node(Op::kAdd, {coarse(c.Input()), coarse(c.Numbers({448, 448, 448, 448}))});
  c.graph.AddOutput("y", cast(sum, ir::DType::kF32));
  EXPECT_EQ(c.Truth()[0].ToFloats()[2], 448);
  EXPECT_EQ(c.JudgeWith(2, 448.5f), Verdict::kWithin);
  EXPECT_EQ(c.JudgeWith(2, 460), Verdict::kApart);
}

// NaN in weights of a Conv: kernels may leave out what meets padding, and nothing else.
TEST(Compare, NaNMeetsPadding) {
  for (const auto& [pads, made] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
    Case c;
    const auto reshaped = [&](ValueId v, std::vector<int64_t> to) {
      return c.Node(Op::kReshape, {v, c.graph.AddConstant(Tensor::S64({static_cast<int64_t>(to.size())}, to))});
    };
    ValueId w = c.graph.AddConstant(Tensor::F32({1, 1, 3}, {kNaN, 1, 1}));
    if (made) w = c.Node(Op::kSigmoid, {w});
    const ValueId y = c.Node(Op::kConv, {reshaped(c.Input(), {1, 1, 4}), w},
                             pads ? ir::Attrs{{"pads", std::vector<int64_t>{1, 1}}} : ir::Attrs{});
    c.graph.AddOutput("y", reshaped(y, {-1}));
    EXPECT_EQ(c.JudgeWith(0, -1), pads ? Verdict::kUnstable : Verdict::kApart);
  }
}

TEST(Compare, ALimitKeepsTheBitsOfAllElse) {
  for (const Case& c : {Scaled({{1e18f, -0.0f, 1e-44f, kNaN}, {1, 1, 1, 1}}),
                        Scaled({{5000, -0.0f, 1e-7f, kNaN}, {1, 1, 1, 1}}, ir::DType::kF16)}) {
    for (const Beyond beyond : {Beyond::kHuge, Beyond::kInfinite}) {
      const auto limited = WithLimit(c.graph, beyond);
      ASSERT_TRUE(limited.has_value()) << limited.error().message;
      EXPECT_TRUE(SameBits(c.Truth(), c.Run(*limited).value()));
    }
  }
}

}  // namespace
}  // namespace octavo::fuzz
