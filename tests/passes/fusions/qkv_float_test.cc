// qkv_float.cc: projections of one attention become one product and a Split; columns are independent, so the numbers stay.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

// Single-head attention over x [2,5,16]; which of q, k and v have a bias, and whether each reads an activation of its own.
Graphs Projections(std::vector<bool> biased, bool apart = false) {
  Graphs m(4);
  const ValueId x = m.Input("x", {2, 5, 16});
  const ValueId other = m.Input("other", {2, 5, 16}), third = m.Input("third", {2, 5, 16});
  const auto linear = [&](ValueId in, bool bias) {
    const ValueId y = m.Node(Op::kMatMul, {in, m.g.AddConstant(Random({16, 8}, m.rng()))});
    return bias ? m.Node(Op::kAdd, {y, m.g.AddConstant(Random({8}, m.rng()))}) : y;
  };
  const ValueId q = linear(x, biased[0]), k = linear(apart ? other : x, biased[1]),
                v = linear(apart ? third : x, biased[2]);
  m.Attention(q, m.Perm(k, {0, 2, 1}), v);
  EXPECT_TRUE(ir::Inference::Run(m.g).has_value());
  return m;
}

TEST(QkvFloat, OneProductWithTheSameNumbers) {
  for (const std::vector<bool>& biased :
       {std::vector<bool>{true, true, true}, {true, false, true}, {false, false, false}}) {
    const Graphs before = Projections(biased);
    Graph after = before.g;
    PassRun run;
    EXPECT_TRUE(FuseQkvFloat(after, run).value_or(false));
    EXPECT_EQ(CountOf(after, Op::kMatMul), 3);  // the projections, and the two of attention
    EXPECT_EQ(CountOf(after, Op::kSplit), 1);
    EXPECT_EQ(CountOf(after, Op::kAdd), biased[0] ? 1 : 0);
    const ir::TensorMap inputs{
        {"x", Random({2, 5, 16}, 1)}, {"other", Random({2, 5, 16}, 2)}, {"third", Random({2, 5, 16}, 3)}};
    EXPECT_EQ(Difference(before.g, after, inputs), 0.0);
  }
}

TEST(QkvFloat, ProjectionsOfThreeActivationsStay) {
  Graphs m = Projections({true, true, true}, true);
  PassRun run;
  EXPECT_FALSE(FuseQkvFloat(m.g, run).value_or(true));
}

}  // namespace
}  // namespace octavo::passes::fusions
