// conv_affine.cc: numbers for each filter, and what batch_norm.cc makes, go into the convolution before them; what is none of these stays.
#include <gtest/gtest.h>

#include <limits>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using Ints = std::vector<int64_t>;

ValueId Conv(Graphs& m, bool bias = true) {
  std::vector<ValueId> in = {m.Input("x", {2, 6, 8, 7}), m.Reals({8, 3, 3, 3})};
  if (bias) in.push_back(m.Vector(8, -0.4f));
  return m.Node(Op::kConv, in, {{"group", int64_t{2}}, {"pads", Ints{1, 1, 1, 1}}});
}

ValueId Norm(Graphs& m, ValueId x) {
  return m.Node(Op::kBatchNormalization, {x, m.Reals({8}), m.Vector(8, -0.3f), m.Vector(8, -0.1f), m.Filled({8}, 0.7f)},
                {{"epsilon", 1e-3f}});
}

void Fires(const std::function<ValueId(Graphs&)>& build, int affine) {
  Graphs m(3, 18);
  m.g.AddOutput("y", build(m));
  const Fused f = Fuse(m.g);
  EXPECT_EQ(CountOf(f.graph, Op::kBatchNormalization), 0);
  EXPECT_EQ(CountOf(f.graph, Op::kMul) + CountOf(f.graph, Op::kAdd), affine);
  EXPECT_LT(Difference(m.g, f.graph, {{"x", Random({2, 6, 8, 7}, 1)}}), 1.5e-5);  // 3 roundings of sums up to 70
}

TEST(ConvAffineRule, Fires) {
  Fires([](Graphs& m) { return Norm(m, Conv(m)); }, 0);
  Fires([](Graphs& m) { return Norm(m, Conv(m, false)); }, 0);
  Fires([](Graphs& m) { return m.Node(Op::kMul, {m.Filled({1, 8, 1, 1}, 0.3f), Conv(m)}); }, 0);
  Fires([](Graphs& m) { return m.Node(Op::kAdd, {Conv(m, false), m.Filled({8, 1, 1}, 0.3f)}); }, 0);
  Fires([](Graphs& m) { return m.Node(Op::kMul, {Conv(m), m.Real(0.3f)}); }, 0);
  Fires([](Graphs& m) { return Norm(m, m.Node(Op::kRelu, {Conv(m)})); }, 2);  // no convolution before it
}

TEST(ConvAffineRule, WhatOthersReadStays) {
  EXPECT_EQ(CountAfter(FuseFloat, Op::kMul,
                       [](Graphs& m) {
                         const ValueId conv = Conv(m);
                         m.g.AddOutput("y", m.Node(Op::kMul, {conv, m.Real(2.0f)}));
                         m.g.AddOutput("z", conv);
                       }),
            1);
}

TEST(ConvAffineRule, RefusesWithASentence) {
  const auto refuses = [](Op op, const std::function<ValueId(Graphs&)>& s) {
    Refuses("the constant is no finite number for each filter of a float Conv", ConvAffine(op),
            [&](Graphs& m) { m.g.AddOutput("y", m.Node(op, {Conv(m), s(m)})); });
  };
  refuses(Op::kMul, [](Graphs& m) { return m.Reals({1, 1, 8, 1}); });
  refuses(Op::kMul, [](Graphs& m) { return m.Reals({8, 7}); });
  refuses(Op::kAdd, [](Graphs& m) { return m.Reals({7}); });
  refuses(Op::kMul, [](Graphs& m) { return m.Real(std::numeric_limits<float>::infinity()); });
  refuses(Op::kAdd, [](Graphs& m) { return m.Filled({8, 1, 1}, std::numeric_limits<float>::quiet_NaN()); });
}

}  // namespace
}  // namespace octavo::passes::fusions
