// gelu_forms.cc: GELUs that a tool took apart or wrote by the complement fuse, and no other constants.
#include <gtest/gtest.h>

#include "octavo/tests/passes/gelu_graphs.h"

namespace octavo::passes::fusions {
namespace {

// onnxsim multiplies the 0.5 into the weights behind.
TEST(GeluForms, TwiceAGelu) {
  for (const bool apart : {false, true}) {
    for (const float one : {1.0f, 1.1f}) {
      GeluGraphs b(3, 18);
      b.g.AddOutput("y", apart ? b.Plus(b.Times(b.Erf(), b.x), one == 1.0f ? b.x : b.Times(b.x, b.Real(one)))
                               : b.Times(b.x, b.Plus(b.Real(one), b.Erf())));
      const Fused f = Fuse(b.g);
      EXPECT_EQ(CountOf(f.graph, Op::kGelu), one == 1.0f ? 1 : 0) << apart;
      EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 9}, 2)}}), 2e-6) << apart;
    }
  }
}

// 1 - erf(-u), which is erfc(-u).
TEST(GeluForms, ByTheComplement) {
  for (int form = 0; form < 12; ++form) {
    for (const float off : {1.0f, 1.01f}) {
      GeluGraphs b(3, 18);
      const ValueId x = b.x, half = b.Real(0.5f);
      const auto neg = [&b](ValueId v) { return b.Node(Op::kNeg, {v}); };
      const ValueId inner[] = {
          b.Times(x, b.Real(-0.70710678f * off)), b.Node(Op::kDiv, {x, b.Real(-1.41421356f * off)}),
          b.Node(Op::kDiv, {neg(x), b.Real(1.41421356f * off)}), neg(b.Times(x, b.Real(0.70710678f * off)))};
      const ValueId rest = b.Node(Op::kSub, {b.Real(1.0f), b.Node(Op::kErf, {inner[form % 4]})});
      b.g.AddOutput("y", form < 4   ? b.Times(b.Times(x, rest), half)
                         : form < 8 ? b.Times(b.Times(half, x), rest)
                                    : b.Times(x, b.Times(rest, half)));
      const Fused f = Fuse(b.g);
      EXPECT_EQ(CountOf(f.graph, Op::kGelu), off == 1.0f ? 1 : 0) << form;
      EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 9}, 2)}}), 2e-6) << form;
    }
  }
}

}  // namespace
}  // namespace octavo::passes::fusions
