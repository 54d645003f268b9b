// powers.cc: powers by 2, 3 and, where nothing is below 0, 1/2.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

void Becomes(float exponent, Op op, int count, bool squared = false) {
  Graphs m(3, 18);
  ValueId x = m.Input("x", {4, 50});
  if (squared) x = m.Node(Op::kAdd, {m.Node(Op::kMul, {x, x}), m.Real(1e-6f)});
  m.g.AddOutput("y", m.Node(Op::kPow, {x, m.Real(exponent)}));
  const Fused f = Fuse(m.g);
  EXPECT_EQ(CountOf(f.graph, op), count);
  EXPECT_EQ(CountOf(f.graph, Op::kPow), 0);
  EXPECT_LT(Difference(m.g, f.graph, {{"x", Random({4, 50}, 1)}}), 1e-6);
}

TEST(PowerRule, Fires) {
  Becomes(2, Op::kMul, 1);
  Becomes(3, Op::kMul, 2);
  Becomes(0.5f, Op::kSqrt, 1, true);
}

TEST(PowerRule, WhatStays) {
  const auto stays = [](const std::function<ValueId(Graphs&, ValueId)>& build) {
    EXPECT_EQ(CountAfter(FuseFloat, Op::kPow, [&](Graphs& m) { m.g.AddOutput("y", build(m, m.Input("x", {4, 50}))); }),
              1);
  };
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kPow, {x, m.Real(4)}); });
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kPow, {m.Real(2), x}); });
  stays([](Graphs& m, ValueId x) {
    return m.Node(Op::kPow, {m.Node(Op::kAdd, {m.Node(Op::kMul, {x, x}), m.Real(-1)}), m.Real(0.5f)});
  });
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kPow, {m.Node(Op::kMul, {x, m.Real(3)}), m.Real(0.5f)}); });
  for (const bool behind : {false, true}) {
    Refuses("Illegal: a graph with codes keeps its bits", Power(2), [&](Graphs& m) {
      ValueId x = m.Input("x", {4, 50});
      if (!behind) x = m.Coded(x, 0.1f, 128);
      const ValueId y = m.Node(Op::kPow, {x, m.Real(2)});
      m.g.AddOutput("y", behind ? m.Coded(y, 0.1f, 128) : y);
    });
  }
  Refuses("Illegal: the power 1/2 of -inf is inf, and x is not known to be above 0", Power(0.5),
          [](Graphs& m) { m.g.AddOutput("y", m.Node(Op::kPow, {m.Input("x", {4, 50}), m.Real(0.5f)})); });
}

}  // namespace
}  // namespace octavo::passes::fusions
