// gelu.cc: fires on the forms of exporters, within its bound, and on no other constants.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

Graphs ErfGelu(float divisor) {
  Graphs b(3, 18);
  const ValueId x = b.Input("x", {2, 9});
  const ValueId erf = b.Node(Op::kErf, {b.Node(Op::kDiv, {x, b.Real(divisor)})});
  const ValueId sum = b.Node(Op::kAdd, {erf, b.Real(1.0f)});
  b.g.AddOutput("y", b.Node(Op::kMul, {b.Node(Op::kMul, {x, sum}), b.Real(0.5f)}));
  return b;
}
TEST(GeluRule, FiresOnTheErfForm) {
  const Graphs b = ErfGelu(1.41421354f);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kGelu), 1);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 9}, 2)}}), 1e-6);
}
TEST(GeluRule, RefusesAnotherDivisor) {
  const Fused f = Fuse(ErfGelu(1.5f).g);
  EXPECT_EQ(CountOf(f.graph, Op::kGelu), 0);
  EXPECT_NE(DeepestReason(f, "gelu_erf").find("is 1.5"), std::string::npos) << DeepestReason(f, "gelu_erf");
}

TEST(GeluRule, AGeluHasAHalf) {
  const auto gelu = [](float half) {
    return [half](Graphs& m) {
      const ValueId x = m.Input("x", {2, 9});
      const ValueId erf = m.Node(Op::kErf, {m.Node(Op::kDiv, {x, m.Real(1.41421356f)})});
      const ValueId sum = m.Node(Op::kAdd, {erf, m.Real(1.0f)});
      m.g.AddOutput("y", m.Node(Op::kMul, {m.Node(Op::kMul, {x, sum}), m.Real(half)}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kGelu, gelu(0.5f)), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kGelu, gelu(0.6f)), 0);
}

}  // namespace
}  // namespace octavo::passes::fusions
