// skip_layer_norm.cc: fires on both norms with the same numbers; sums that broadcast and norms whose mean is wanted stay.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::SymShape;

TEST(SkipLayerNormRule, FiresAndKeepsTheSumForItsReaders) {
  Graphs b(3, 18);
  const ValueId x = b.Input("x", {2, 3, 8});
  const ValueId sum = b.Node(Op::kAdd, {x, b.Input("skip", {2, 3, 8})});
  const ValueId y =
      b.Node(Op::kLayerNormalization, {sum, b.Vector(8, 0.5f), b.Vector(8, 0.1f)}, {{"axis", int64_t{-1}}});
  b.g.AddOutput("y", b.Node(Op::kAdd, {sum, y}));
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kSkipLayerNorm), 1);
  EXPECT_EQ(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 7)}, {"skip", Random({2, 3, 8}, 8)}}), 0.0);
}

TEST(SkipLayerNormRule, TakesRmsNorm) {
  Graphs b(3, 18);
  const ValueId x = b.Input("x", {2, 3, 8});
  const ValueId sum = b.Node(Op::kAdd, {x, b.Input("skip", {2, 3, 8})});
  const ValueId y = b.Node(Op::kRMSNormalization, {sum, b.Vector(8, 0.5f)}, {{"axis", int64_t{-1}}});
  b.g.AddOutput("y", b.Node(Op::kAdd, {sum, y}));
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kSkipLayerNorm), 1);
  EXPECT_EQ(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 7)}, {"skip", Random({2, 3, 8}, 8)}}), 0.0);
}

TEST(SkipLayerNormRule, ASumThatBroadcastsIsNoSkip) {
  const auto sum = [](SymShape skip) {
    return [skip](Graphs& m) {
      m.g.AddOutput("y", m.Norm(m.Node(Op::kAdd, {m.Input("x", {2, 3, 8}), m.Input("skip", skip)})));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSkipLayerNorm, sum({2, 3, 8})), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSkipLayerNorm, sum({1, 3, 8})), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSkipLayerNorm, sum({ir::Dim::Symbol("n"), 3, 8})), 0);
}

TEST(SkipLayerNormRule, RefusesWithASentence) {
  Refuses("the mean or deviation output is used", SkipLayerNorm(Op::kLayerNormalization), [](Graphs& m) {
    const ValueId sum = m.Node(Op::kAdd, {m.In({2, 8}), m.In({2, 8})});
    const NodeId norm = m.g.AddNode(Op::kLayerNormalization, {sum, m.Filled({8})}, 2, {}, "norm");
    for (size_t i = 0; i < 2; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(norm).output(i));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
