// rms_norm.cc: fires on the chain, within its bound, over the last axis alone.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

// x / sqrt(mean(x^2) + eps) * gamma as TorchScript writes it, over `axis`.
Graphs RmsChain(int64_t axis, bool gamma = true, ir::Dim last = ir::Dim(8)) {
  Graphs b(3, 18);
  const ValueId x = b.Input("x", {2, 3, std::move(last)});
  const ValueId square = b.Node(Op::kPow, {x, b.Real(2.0f)});
  const ValueId mean = b.Node(Op::kReduceMean, {square, b.Ints({axis})});
  const ValueId root = b.Node(Op::kSqrt, {b.Node(Op::kAdd, {mean, b.Real(1e-6f)})});
  const ValueId inverse = b.Node(Op::kDiv, {b.Real(1.0f), root});
  const ValueId normal = b.Node(Op::kMul, {x, inverse});
  b.g.AddOutput("y", gamma ? b.Node(Op::kMul, {b.Vector(8, 0.5f), normal}) : normal);
  return b;
}
TEST(RmsNormRule, Fires) {
  const Graphs b = RmsChain(-1);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 1);
  const double difference = Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 9)}});
  EXPECT_LT(difference, 1e-6);  // perhaps another order of roundings: a few ulp of values around 1
}
// Gemma 3n and 4 take the power -0.5 instead of one over a root; others divide by the power 0.5. Another power is no norm.
Graphs RmsPower(float power, bool over) {
  Graphs b(3, 18);
  const ValueId x = b.Input("x", {2, 3, 8});
  const ValueId mean = b.Node(Op::kReduceMean, {b.Node(Op::kPow, {x, b.Real(2.0f)}), b.Ints({-1})});
  const ValueId raised = b.Node(Op::kPow, {b.Node(Op::kAdd, {mean, b.Real(1e-6f)}), b.Real(power)});
  b.g.AddOutput("y", b.Node(Op::kMul, {b.Node(over ? Op::kDiv : Op::kMul, {x, raised}), b.Vector(8, 0.5f)}));
  return b;
}
TEST(RmsNormRule, FiresOnAPower) {
  for (const bool over : {false, true}) {
    const Graphs b = RmsPower(over ? 0.5f : -0.5f, over);
    const Fused f = Fuse(b.g);
    EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 1) << over;
    EXPECT_EQ(CountOf(f.graph, Op::kPow), 0) << over;
    EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 9)}}), 1e-6) << over;
    for (const float other : {0.5f, -0.5f, 1.0f, -0.25f}) {
      if (other == (over ? 0.5f : -0.5f)) continue;
      EXPECT_EQ(CountOf(Fuse(RmsPower(other, over).g).graph, Op::kRMSNormalization), 0) << other << over;
    }
  }
}
// gamma meets x in front of the division, or one over the root first. A gamma that is no vector of the rows stays where it stands.
TEST(RmsNormRule, GammaAnywhere) {
  const auto build = [](int form, ir::Shape gamma_shape) {
    return [=](Graphs& b) {
      const ValueId x = b.Input("x", {2, 3, 8}), gamma = b.Filled(gamma_shape, 0.7f);
      const ValueId mean = b.Node(Op::kReduceMean, {b.Node(Op::kMul, {x, x}), b.Ints({-1})});
      const ValueId root = b.Node(Op::kSqrt, {b.Node(Op::kAdd, {mean, b.Real(1e-6f)})});
      const ValueId inverse = form == 1 || form == 2 ? b.Node(Op::kReciprocal, {root}) : ValueId{};
      const ValueId y = form == 0   ? b.Node(Op::kDiv, {b.Node(Op::kMul, {gamma, x}), root})
                        : form == 1 ? b.Node(Op::kMul, {b.Node(Op::kMul, {x, gamma}), inverse})
                        : form == 2 ? b.Node(Op::kMul, {x, b.Node(Op::kMul, {inverse, gamma})})
                                    : b.Node(Op::kMul, {b.Node(Op::kDiv, {gamma, root}), x});
      b.g.AddOutput("y", y);
    };
  };
  for (int form = 0; form < 4; ++form) {
    Graphs b(3, 18);
    build(form, {8})(b);
    const Fused f = Fuse(b.g);
    EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 1) << form;
    EXPECT_EQ(CountOf(f.graph, Op::kMul), 0) << form;
    EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 9)}}), 1e-6) << form;
    EXPECT_EQ(CountAfter(FuseFloat, Op::kRMSNormalization, build(form, {3, 8})), 0) << form;
  }
}
TEST(RmsNormRule, WithoutGamma) {
  const Graphs b = RmsChain(-1, false);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kMul), 0);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 9)}}), 1e-6);
  Refuses("a norm without gamma needs to know how long a row is", RmsNorm(false),
          [](Graphs& m) { m = RmsChain(-1, false, ir::Dim::Symbol("d")); });
}
TEST(RmsNormRule, RefusesAnotherAxis) {
  const Fused f = Fuse(RmsChain(1).g);
  EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 0);
  EXPECT_NE(DeepestReason(f, "rms_norm").find("axis 1 is not the last one"), std::string::npos)
      << DeepestReason(f, "rms_norm");
}

}  // namespace
}  // namespace octavo::passes::fusions
