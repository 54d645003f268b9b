// batch_norm.cc: a norm of constants becomes a product and a sum for each channel; one in training, or with numbers that are none, stays.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

void Norm(Graphs& m, ir::SymShape shape, int64_t training = 0, float variance = 0.7f) {
  const ValueId x = m.Input("x", std::move(shape));
  m.g.AddOutput("y", m.Node(Op::kBatchNormalization,
                            {x, m.Reals({8}), m.Vector(8, -0.3f), m.Vector(8, -0.1f), m.Filled({8}, variance)},
                            {{"epsilon", 1e-3f}, {"training_mode", training}}));
}

TEST(BatchNormRule, Fires) {
  for (const ir::Shape& shape : {ir::Shape{5, 8}, ir::Shape{2, 8, 7}, ir::Shape{2, 8, 5, 7}}) {
    Graphs m(3, 18);
    Norm(m, {shape.begin(), shape.end()});
    const Fused f = Fuse(m.g);
    EXPECT_EQ(CountOf(f.graph, Op::kBatchNormalization), 0);
    EXPECT_EQ(CountOf(f.graph, Op::kMul) + CountOf(f.graph, Op::kAdd), 2);
    EXPECT_LT(Difference(m.g, f.graph, {{"x", Random(shape, 1)}}), 3e-6);  // a few roundings of results up to 10
  }
}

TEST(BatchNormRule, RefusesWithASentence) {
  Refuses("it is in training", BatchNorm(), [](Graphs& m) { Norm(m, {2, 8, 7}, 1); });
  Refuses("its statistics are no finite constants for each channel", BatchNorm(),
          [](Graphs& m) { Norm(m, {2, 8, 7}, 0, -1.0f); });
}

}  // namespace
}  // namespace octavo::passes::fusions
