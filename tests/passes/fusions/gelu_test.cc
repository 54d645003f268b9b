// gelu.cc: fires on the forms of exporters, within its bound, and on no other constants.
#include <gtest/gtest.h>

#include "octavo/tests/passes/gelu_graphs.h"

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
  EXPECT_EQ(CountAfter(FuseFloat, Op::kMul, gelu(0.5f)), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kMul, gelu(0.6f)), 2);  // twice a GELU, times 0.6
}

// What authors write beside the exporters' own forms.
ValueId Form(GeluGraphs& b, int form, float off) {
  const ValueId c = b.Real(0.044715f * off), f = b.Real(0.79788456f), x = b.x;
  const ValueId cxx = b.Times(b.Times(c, x), x);
  switch (form) {
    case 0:
      return b.Times(x, b.Plus(b.Times(b.Erf(), b.Real(0.5f * off)), b.Real(0.5f)));
    case 1:
      return b.Times(b.Plus(b.Times(x, b.Erf()), x), b.Real(0.5f * off));
    case 2:  // BLOOM
      return b.HalfOf(b.Node(Op::kTanh, {b.Times(b.Times(f, x), b.Plus(b.Real(1.0f), cxx))}));
    default:
      return b.HalfOf(b.Node(Op::kTanh, {b.Times(b.Plus(x, b.Times(cxx, x)), f)}));
  }
}
TEST(GeluRule, FormsOfAuthors) {
  for (int form = 0; form < 4; ++form) {
    GeluGraphs b(3, 18), other(3, 18);
    b.g.AddOutput("y", Form(b, form, 1.0f));
    other.g.AddOutput("y", Form(other, form, 1.01f));
    const Fused f = Fuse(b.g);
    EXPECT_EQ(CountOf(f.graph, Op::kGelu), 1) << form;
    EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 9}, 2)}}), 1e-6) << form;
    EXPECT_EQ(CountOf(Fuse(other.g).graph, Op::kGelu), form == 1 ? 1 : 0) << form;  // twice a GELU, times 0.505
  }
}

}  // namespace
}  // namespace octavo::passes::fusions
