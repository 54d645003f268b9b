// pointwise.cc, linear.cc: convolutions of kernel 1 around attention and those with one window are Linears, to the bit; all others stay.
#include <algorithm>

#include "octavo/tests/passes/canonical_support.h"

namespace octavo::passes::canonical {
namespace {

constexpr int64_t kChannels = 8;

// Attention of two heads over pictures [b,8,h,w], or sequences [b,8,s], whose projections are convolutions.
struct Picture : Builder {
  explicit Picture(size_t dims) : ones(dims, 1), open(dims == 2) {}
  ValueId Conv(ValueId x, int64_t filters = kChannels, bool bias = true, Attrs attrs = {}) {
    ir::Shape shape{filters, kChannels};
    shape.insert(shape.end(), ones.begin(), ones.end());
    std::vector<ValueId> in{x, W(shape, start += 0.1f)};
    if (bias) in.push_back(W({filters}, start));
    return Op1(Op::kConv, std::move(in), std::move(attrs));
  }
  // [b,2,s,4]
  ValueId Heads(ValueId y) { return Transpose(Reshape(y, {0, 2, 4, -1}), {0, 1, 3, 2}); }
  ValueId Attend(ValueId q, ValueId k, ValueId v) {
    const ValueId p =
        Op1(Op::kSoftmax, {Op1(Op::kMatMul, {q, Transpose(k, {0, 1, 3, 2})})}, Attrs{{"axis", int64_t{-1}}});
    return Op1(Op::kMatMul, {p, v});
  }
  // Back to channels [b,8,s].
  ValueId Channels(ValueId o) { return Reshape(Transpose(o, {0, 1, 3, 2}), {0, kChannels, -1}); }
  ValueId Input() {
    return open ? In("x", {Sym("b"), kChannels, Sym("s"), Sym("t")}) : In("x", {Sym("b"), kChannels, Sym("s")});
  }

  std::vector<int64_t> ones;
  bool open;
  float start = 0.1f;
};

TEST(CanonicalPointwise, ProjectionsOfPicturesAndSequencesAreLinears) {
  for (size_t dims : {1u, 2u}) {
    Picture m(dims);
    const ValueId x = m.Input();
    const ValueId o = m.Attend(m.Heads(m.Conv(x)), m.Heads(m.Conv(x, kChannels, false)), m.Heads(m.Conv(x)));
    m.Out(m.Op1(Op::kConv, {m.Channels(o), m.W({4, kChannels, 1}), m.W({4})}));
    const std::string ops = Check(m.g, Pointwise);
    EXPECT_EQ(Count(ops, "Conv"), 0u) << ops;
    EXPECT_EQ(Count(ops, "MatMul"), 6u) << ops;
    EXPECT_EQ(Count(ops, "Add"), 3u) << ops;
  }
}

TEST(CanonicalPointwise, TheTransposesCancel) {
  Picture m(1);
  const ValueId x = m.Input();
  m.Out(m.Attend(m.Heads(m.Conv(x)), m.Heads(m.Conv(x)), m.Heads(m.Conv(x))));
  Graph g = m.g;
  PassRun run;
  ASSERT_TRUE(Canonicalize(g, run));
  const std::string ops = Ops(g);
  EXPECT_EQ(Count(ops, "Transpose"), 4u) << ops;  // of x, and the heads of q, k and v
  EXPECT_EQ(ops.find("Transpose MatMul Add"), 0u) << ops;
}

TEST(CanonicalPointwise, ASplitOfChannelsBecomesOneOfTheLastAxis) {
  Picture m(2);
  const ValueId x = m.Input();
  const NodeId split =
      m.g.AddNode(Op::kSplit, {m.Conv(x, 3 * kChannels), m.Axis({8, 8, 8})}, 3, {{"axis", int64_t{1}}});
  const auto part = [&](size_t i) { return m.g.node(split).output(i); };
  m.Out(m.Attend(m.Heads(part(0)), m.Heads(part(1)), m.Heads(part(2))));
  m.Out(m.Op1(Op::kRelu, {part(2)}), "channels");  // who reads them as channels still gets channels
  const std::string ops = Check(m.g, Pointwise);
  EXPECT_EQ(ops.find("Reshape Transpose MatMul Add Split"), 0u) << ops;
}

TEST(CanonicalPointwise, ASplitBySizesOfARunStays) {
  Picture m(2);
  const ValueId x = m.Input();
  const NodeId split =
      m.g.AddNode(Op::kSplit, {m.Conv(x, 3 * kChannels), m.Axis({8, 8, 8})}, 3, {{"axis", int64_t{1}}});
  const auto part = [&](size_t i) { return m.g.node(split).output(i); };
  m.Out(m.Attend(m.Heads(part(0)), m.Heads(part(1)), m.Heads(part(2))));
  ASSERT_TRUE(ir::Inference::Run(m.g));
  m.g.SetInput(split, 1, m.g.AddInput("sizes", {DType::kS64, SymShape{3}}));  // the types are what a file declares
  PassRun run;
  ASSERT_TRUE(Pointwise(m.g, run));
  EXPECT_TRUE(m.g.IsAlive(split));
}

TEST(CanonicalPointwise, OtherReadersOfChannelsGetThem) {
  Picture m(2);
  const ValueId x = m.Input(), v = m.Conv(x);
  m.Out(m.Attend(m.Heads(m.Conv(x)), m.Heads(m.Conv(x)), m.Heads(v)));
  m.Out(m.Op1(Op::kRelu, {v}), "channels");
  EXPECT_EQ(Count(Check(m.g, Pointwise), "Conv"), 0u);
}

TEST(CanonicalPointwise, WhatIsNoProductOrNotOfAttentionStays) {
  const auto stays = [](const std::function<ValueId(Picture&, ValueId)>& conv, SymShape x_shape = {1, kChannels, 6}) {
    Picture m(1);
    const ValueId x = m.In("x", std::move(x_shape)), other = m.In("other", {1, 2, 3, 4});
    m.Out(m.Attend(m.Transpose(m.Reshape(conv(m, x), {1, 2, 4, -1}), {0, 1, 3, 2}), other, other));
    const std::string ops = Check(m.g, Pointwise);
    return Count(ops, "Conv") == 1;
  };
  EXPECT_FALSE(stays([](Picture& m, ValueId x) { return m.Conv(x); }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) { return m.Conv(x, 8, true, Attrs{{"strides", Ints{2}}}); }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) { return m.Conv(x, 8, true, Attrs{{"pads", Ints{1, 1}}}); }));
  EXPECT_TRUE(
      stays([](Picture& m, ValueId x) { return m.Op1(Op::kConv, {x, m.W({8, 2, 1})}, Attrs{{"group", int64_t{4}}}); }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) { return m.Op1(Op::kConv, {x, m.W({8, 8, 3})}); }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) { return m.Op1(Op::kConv, {x, m.Op1(Op::kTanh, {m.W({8, 8, 1})})}); }));
  EXPECT_TRUE(
      stays([](Picture& m, ValueId x) { return m.Op1(Op::kConv, {x, m.W({8, 8, 1}), m.Op1(Op::kTanh, {m.W({8})})}); }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) {  // alone on its activation, and its channels are read
    const ValueId y = m.Conv(x);
    m.Out(m.Op1(Op::kRelu, {y}), "channels");
    return y;
  }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) {  // a graph output
    const ValueId y = m.Conv(x);
    m.Out(y, "channels");
    return y;
  }));
  EXPECT_TRUE(stays([](Picture& m, ValueId x) { return m.Op1(Op::kRelu, {m.Conv(x)}); }));
}

// A Conv in 16 bits rounds once, a MatMul and an Add twice: without a bias they are equal.
TEST(CanonicalPointwise, SixteenBitsWithABiasStay) {
  for (bool bias : {false, true}) {
    Picture m(1);
    const ValueId x = m.Cast(m.In("x", {1, kChannels, 6}), DType::kF16);
    const auto half = [&](ir::Shape shape) {
      Tensor t = Tensor::Zeros(DType::kF16, std::move(shape));
      std::ranges::fill(t.mutable_as<uint16_t>(), uint16_t{0x3800});  // 0.5
      return m.g.AddConstant(std::move(t));
    };
    const auto conv = [&] {
      std::vector<ValueId> in{x, half({8, 8, 1})};
      if (bias) in.push_back(half({8}));
      return m.Heads(m.Op1(Op::kConv, in));
    };
    m.Out(m.Cast(m.Attend(conv(), conv(), conv()), DType::kF32));
    EXPECT_EQ(Count(Check(m.g, Pointwise), "Conv"), bias ? 3u : 0u);
  }
}

// Patches that arrive as rows: the kernel is as large as what it reads.
TEST(CanonicalLinear, AConvolutionOverAllOfItsInputIsALinear) {
  for (const bool bias : {true, false}) {
    for (const ir::Shape& kernel : {ir::Shape{5}, ir::Shape{4, 3}, ir::Shape{2, 3, 2}}) {
      Builder b;
      SymShape in{Sym("b"), 3};
      ir::Shape weights{7, 3};
      for (const int64_t k : kernel) in.push_back(k), weights.push_back(k);
      std::vector<ValueId> operands{b.In("x", in), b.W(weights, 0.3f)};
      if (bias) operands.push_back(b.W({7}, 0.2f));
      b.Out(b.Reshape(b.Op1(Op::kConv, std::move(operands), Attrs{{"strides", kernel}}), {0, 7}));
      EXPECT_EQ(Check(b.g, Canonicalize), bias ? "Reshape MatMul Add" : "Reshape MatMul");
    }
  }
}

TEST(CanonicalLinear, OtherConvolutionsStay) {
  const auto ops = [](SymShape in, ir::Shape weights, Attrs attrs) {
    Builder b;
    const ValueId x = b.In("x", std::move(in));
    b.Out(b.Op1(Op::kConv, {x, b.W(std::move(weights), 0.3f)}, std::move(attrs)));
    return Check(b.g, Linear);
  };
  EXPECT_EQ(Count(ops({Sym("b"), 3, 4, 4}, {7, 3, 4, 4}, {}), "Conv"), 0u);
  EXPECT_EQ(Count(ops({Sym("b"), 3, 5, 4}, {7, 3, 4, 4}, {}), "Conv"), 1u);  // two windows
  EXPECT_EQ(Count(ops({Sym("b"), 3, Sym("h"), 4}, {7, 3, 3, 4}, {}), "Conv"), 1u);
  EXPECT_EQ(Count(ops({Sym("b"), 3, 4, 4}, {7, 3, 4, 4}, Attrs{{"pads", Ints{1, 0, 0, 0}}}), "Conv"), 1u);
  EXPECT_EQ(Count(ops({Sym("b"), 3, 4, 4}, {7, 3, 2, 2}, Attrs{{"dilations", Ints{3, 3}}}), "Conv"), 1u);
  EXPECT_EQ(Count(ops({Sym("b"), 6, 4, 4}, {8, 3, 4, 4}, Attrs{{"group", int64_t{2}}}), "Conv"), 1u);
  EXPECT_EQ(Count(ops({Sym("b"), 3, 1, 1}, {7, 3, 1, 1}, {}), "Conv"), 1u);  // a gate
}

}  // namespace
}  // namespace octavo::passes::canonical
