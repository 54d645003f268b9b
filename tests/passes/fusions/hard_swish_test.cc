// hard_swish.cc: the forms that exporters write become HardSwish or HardSigmoid, other constants do not.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

ValueId Clipped(Graphs& m, ValueId x, float three = 3, float six = 6) {
  return m.Node(Op::kClip, {m.Node(Op::kAdd, {x, m.Real(three)}), m.Real(0), m.Real(six)});
}

void Fires(Op op, const std::function<ValueId(Graphs&, ValueId)>& build) {
  Graphs m(3, 18);
  m.g.AddOutput("y", build(m, m.Input("x", {4, 50})));
  const Fused f = Fuse(m.g);
  EXPECT_EQ(CountOf(f.graph, op), 1);
  EXPECT_EQ(f.graph.node_count(), 1u);
  ir::Tensor x = Random({4, 50}, 1);
  for (float& v : x.mutable_as<float>()) v *= 3;
  EXPECT_LT(Difference(m.g, f.graph, {{"x", x}}), 1e-6);
}

TEST(HardSwishRule, Fires) {
  Fires(Op::kHardSwish,
        [](Graphs& m, ValueId x) { return m.Node(Op::kDiv, {m.Node(Op::kMul, {x, Clipped(m, x)}), m.Real(6)}); });
  Fires(Op::kHardSwish,
        [](Graphs& m, ValueId x) { return m.Node(Op::kMul, {m.Node(Op::kDiv, {Clipped(m, x), m.Real(6)}), x}); });
  Fires(Op::kHardSwish, [](Graphs& m, ValueId x) {
    return m.Node(Op::kMul, {m.Real(1.0f / 6), m.Node(Op::kMul, {Clipped(m, x), x})});
  });
  Fires(Op::kHardSwish, [](Graphs& m, ValueId x) {
    return m.Node(Op::kMul, {x, m.Node(Op::kHardSigmoid, {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}})});
  });
  Fires(Op::kHardSigmoid, [](Graphs& m, ValueId x) { return m.Node(Op::kDiv, {Clipped(m, x), m.Real(6)}); });
}

TEST(HardSwishRule, OtherConstants) {
  const auto stays = [](const std::function<ValueId(Graphs&, ValueId)>& build) {
    EXPECT_EQ(
        CountAfter(FuseFloat, Op::kHardSwish, [&](Graphs& m) { m.g.AddOutput("y", build(m, m.Input("x", {4, 50}))); }),
        0);
  };
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kDiv, {m.Node(Op::kMul, {x, Clipped(m, x, 2.9f)}), m.Real(6)}); });
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kDiv, {m.Node(Op::kMul, {x, Clipped(m, x, 3, 5)}), m.Real(6)}); });
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kDiv, {m.Node(Op::kMul, {x, Clipped(m, x)}), m.Real(5)}); });
  stays([](Graphs& m, ValueId x) { return m.Node(Op::kMul, {x, m.Node(Op::kHardSigmoid, {x})}); });  // 0.2
}

}  // namespace
}  // namespace octavo::passes::fusions
