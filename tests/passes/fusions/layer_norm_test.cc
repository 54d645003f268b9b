// layer_norm.cc: fires on the chain, within its bound; another axis, another power and values that others want keep it.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

enum class Affine { kNone, kGamma, kBoth };

Graphs DecomposedNorm(int64_t axis, float power, Affine affine = Affine::kBoth, ir::Dim last = ir::Dim(8)) {
  Graphs b(3, 18);
  const ValueId x = b.Input("x", {2, 3, std::move(last)});
  const ir::Attrs keep{{"keepdims", int64_t{1}}};
  const ValueId d = b.Node(Op::kSub, {x, b.Node(Op::kReduceMean, {x, b.Ints({axis})}, keep)});
  const ValueId var = b.Node(Op::kReduceMean, {b.Node(Op::kPow, {d, b.Real(power)}), b.Ints({axis})}, keep);
  const ValueId root = b.Node(Op::kSqrt, {b.Node(Op::kAdd, {var, b.Real(1e-5f)})});
  ValueId y = b.Node(Op::kDiv, {d, root});
  if (affine != Affine::kNone) y = b.Node(Op::kMul, {y, b.Vector(8, 0.5f)});
  if (affine == Affine::kBoth) y = b.Node(Op::kAdd, {b.Vector(8, -0.2f), y});  // bias first, as TorchScript writes it
  b.g.AddOutput("y", y);
  return b;
}

TEST(LayerNormRule, Fires) {
  const Graphs b = DecomposedNorm(-1, 2.0f);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kReduceMean), 0);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}), 2e-6);
}
TEST(LayerNormRule, WithoutBetaAndWithoutBoth) {
  for (const Affine affine : {Affine::kGamma, Affine::kNone}) {
    const Graphs b = DecomposedNorm(-1, 2.0f, affine);
    const Fused f = Fuse(b.g);
    EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1);
    EXPECT_EQ(CountOf(f.graph, Op::kMul), 0);
    EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}), 2e-6);
  }
  Refuses("a norm without gamma needs to know how long a row is", LayerNorm(false, false),
          [](Graphs& m) { m = DecomposedNorm(-1, 2.0f, Affine::kNone, ir::Dim::Symbol("d")); });
}
// E[x^2] - E[x]^2 with the mean to the power 2; another power is no variance. Gamma meets x - mean in front of the division.
TEST(LayerNormRule, PowersOfTheMean) {
  const auto norm = [](float power) {
    return [=](Graphs& b) {
      const ValueId x = b.Input("x", {2, 3, 8}), mean = b.Node(Op::kReduceMean, {x, b.Ints({-1})});
      const ValueId square = b.Node(Op::kReduceMean, {b.Node(Op::kPow, {x, b.Real(2.0f)}), b.Ints({-1})});
      const ValueId variance = b.Node(Op::kSub, {square, b.Node(Op::kPow, {mean, b.Real(power)})});
      const ValueId root = b.Node(Op::kSqrt, {b.Node(Op::kAdd, {variance, b.Real(1e-5f)})});
      const ValueId scaled = b.Node(Op::kMul, {b.Vector(8, 0.5f), b.Node(Op::kSub, {x, mean})});
      b.g.AddOutput("y", b.Node(Op::kAdd, {b.Node(Op::kDiv, {scaled, root}), b.Vector(8, -0.2f)}));
    };
  };
  Graphs b(3, 18);
  norm(2.0f)(b);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}),
            1e-5);  // what both means share is lost: 2^-22 of 1.3 over a root of 0.3
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, norm(3.0f)), 0);
}
// DiT: what a norm without gamma is multiplied by is one vector for each picture.
TEST(LayerNormRule, ModulatedBehindIt) {
  const auto modulated = [](Graphs& m) {
    m = DecomposedNorm(-1, 2.0f, Affine::kNone);
    m.g.AddOutput("z", m.Node(Op::kMul, {m.g.outputs()[0].value, m.Input("by", {2, 1, 8})}));
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, modulated), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kMul, modulated), 1);
}
TEST(LayerNormRule, OfHalves) {
  Graphs b(3, 18);
  const ValueId x = b.Node(Op::kCast, {b.Input("x", {2, 3, 8})}, {{"to", int64_t{10}}});
  const ValueId d = b.Node(Op::kSub, {x, b.Node(Op::kReduceMean, {x, b.Ints({-1})})});
  const ValueId var = b.Node(Op::kReduceMean, {b.Node(Op::kMul, {d, d}), b.Ints({-1})});
  const ValueId eps = b.g.AddConstant(ir::Tensor::Of<uint16_t>(ir::DType::kF16, {}, std::vector<uint16_t>{0x1400}));
  const ValueId root = b.Node(Op::kSqrt, {b.Node(Op::kAdd, {var, eps})});
  b.g.AddOutput("y", b.Node(Op::kDiv, {d, root}));
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1) << DeepestReason(f, "layer_norm");
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}),
            3 * 0x1p-9);  // six ops round values below 4 by 2^-11
}
TEST(LayerNormRule, RefusesAnotherAxis) {
  const Fused f = Fuse(DecomposedNorm(1, 2.0f).g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 0);
  EXPECT_NE(DeepestReason(f, "layer_norm").find("is not the last one"), std::string::npos)
      << DeepestReason(f, "layer_norm");
}
TEST(LayerNormRule, RefusesAnotherPower) {
  const Fused f = Fuse(DecomposedNorm(-1, 3.0f).g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 0);
}

// x - mean over its deviation; `wanted`: what in between leaves the graph or is read by another node.
TEST(LayerNormRule, WhatLiesInsideAndIsWantedStays) {
  enum class Wanted { kNothing, kOutput, kReader };
  const auto chain = [](Wanted wanted) {
    return [wanted](Graphs& m) {
      const ValueId x = m.Input("x", {2, 3, 8});
      const ValueId d = m.Node(Op::kSub, {x, m.Node(Op::kReduceMean, {x, m.Ints({-1})})});
      const ValueId variance = m.Node(Op::kReduceMean, {m.Node(Op::kMul, {d, d}), m.Ints({-1})});
      const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {variance, m.Real(1e-5f)})});
      const ValueId normal = m.Node(Op::kDiv, {d, root});
      m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {normal, m.Reals({8})}), m.Reals({8})}));
      if (wanted == Wanted::kOutput) m.g.AddOutput("normal", normal);
      if (wanted == Wanted::kReader) m.g.AddOutput("root", m.Node(Op::kNeg, {root}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, chain(Wanted::kNothing)), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, chain(Wanted::kOutput)), 1);  // without gamma and beta,
  EXPECT_EQ(CountAfter(FuseFloat, Op::kAdd, chain(Wanted::kOutput)), 1);                 // which stay behind it
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, chain(Wanted::kReader)), 0);
}

// Flax: the variance as a difference of means, which may come out below 0.
TEST(LayerNormRule, VarianceAsADifference) {
  struct Form {
    bool floor = false, inverse = false, swapped = false;
    float least = 0;
  };
  const auto graph = [](const Form& f) {
    Graphs b(3, 18);
    const ValueId x = b.Input("x", {2, 3, 8});
    const auto mean = [&](ValueId v) { return b.Node(Op::kReduceMean, {v, b.Ints({-1})}, {{"keepdims", int64_t{1}}}); };
    const ValueId of_x = mean(x), of_square = mean(b.Node(Op::kMul, {x, x})), square = b.Node(Op::kMul, {of_x, of_x});
    ValueId variance = b.Node(Op::kSub, f.swapped ? std::vector{square, of_square} : std::vector{of_square, square});
    if (f.floor) variance = b.Node(Op::kMax, {variance, b.Real(f.least)});
    const ValueId root = b.Node(Op::kSqrt, {b.Node(Op::kAdd, {variance, b.Real(1e-3f)})});
    const ValueId d = b.Node(Op::kSub, {x, of_x});
    const ValueId normal =
        f.inverse ? b.Node(Op::kMul, {d, b.Node(Op::kDiv, {b.Real(1.0f), root})}) : b.Node(Op::kDiv, {d, root});
    b.g.AddOutput("y", b.Node(Op::kAdd, {b.Node(Op::kMul, {normal, b.Vector(8, 0.5f)}), b.Vector(8, -0.2f)}));
    return b;
  };
  for (const bool floor : {false, true}) {
    for (const bool inverse : {false, true}) {
      const Graphs b = graph({.floor = floor, .inverse = inverse});
      const Fused f = Fuse(b.g);
      EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1) << DeepestReason(f, "layer_norm");
      EXPECT_EQ(CountOf(f.graph, Op::kReduceMean), 0);
      EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}), 4e-6);
    }
  }
  for (const Form& f : {Form{.floor = true, .least = 0.5f}, Form{.swapped = true}})
    EXPECT_EQ(CountOf(Fuse(graph(f).g).graph, Op::kLayerNormalization), 0);
}

// (x - mean(x)) / deviation * gamma + beta, with this mean.
void Chain(Graphs& m, ValueId x, ValueId mean) {
  const ValueId d = m.Node(Op::kSub, {x, mean});
  const ValueId var = m.Node(Op::kReduceMean, {m.Node(Op::kMul, {d, d}), m.Ints({-1})});
  const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {var, m.Real(1e-5f)})});
  m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {m.Node(Op::kDiv, {d, root}), m.Filled({8})}), m.Filled({8})}));
}

TEST(LayerNormRule, RefusesWithASentence) {
  Refuses("its axes are not one constant", LayerNorm(), [](Graphs& m) {
    const ValueId x = m.In({2, 8});
    Chain(m, x, m.Node(Op::kReduceMean, {x, m.Ints({0, 1})}));
  });
  Refuses("it drops the dimension", LayerNorm(), [](Graphs& m) {
    const ValueId x = m.In({8, 8});
    Chain(m, x, m.Node(Op::kReduceMean, {x, m.Ints({-1})}, {{"keepdims", int64_t{0}}}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
