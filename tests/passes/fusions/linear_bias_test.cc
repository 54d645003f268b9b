// linear_bias.cc: a constant bias behind a product that the pass `dynamic` made goes into it.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;

ValueId Product(Graphs& m) {
  return m.Linear(m.Input("x", {2, 5, 16}, DType::kU8), m.Real(0.02f), m.Zero(DType::kU8, 100));
}

TEST(LinearBiasRule, FiresInEitherOrderAndMeansTheSame) {
  for (const bool first : {false, true}) {
    Graphs m;
    const ValueId y = Product(m), bias = m.Reals({8});
    m.g.AddOutput("y", m.Node(Op::kAdd, first ? std::vector{bias, y} : std::vector{y, bias}));
    ASSERT_TRUE(ir::Inference::Run(m.g));
    Graph fused = m.g;
    PassRun run;
    const auto changed = pattern::ApplyRules({LinearBias()}, fused, run);
    ASSERT_TRUE(changed && *changed);
    EXPECT_EQ(CountOf(fused, Op::kAdd), 0);
    ir::Tensor x = ir::Tensor::Empty(DType::kU8, {2, 5, 16});
    uint8_t code = 0;
    for (uint8_t& c : x.mutable_as<uint8_t>()) c = code += 7;
    EXPECT_EQ(Difference(m.g, fused, {{"x", x}}), 0.0);
  }
}

TEST(LinearBiasRule, RefusesWithASentence) {
  Refuses("what is added is not a constant bias of 8 values", LinearBias(), [](Graphs& m) {
    m.g.AddOutput("y", m.Node(Op::kAdd, {Product(m), m.Reals({5, 8})}));
  });
  Refuses("what is added is not a constant bias of 8 values", LinearBias(), [](Graphs& m) {
    m.g.AddOutput("y", m.Node(Op::kAdd, {Product(m), m.Input("residual", {2, 5, 8})}));
  });
  Refuses("the Linear has an epilogue already", LinearBias(), [](Graphs& m) {
    const ValueId y = Product(m);
    m.g.SetAttr(m.g.value(y).producer, "activation", std::string("relu"));
    m.g.AddOutput("y", m.Node(Op::kAdd, {y, m.Reals({8})}));
  });
  Refuses("the weight is not a constant matrix", LinearBias(), [](Graphs& m) {
    const ValueId y = m.Node(Op::kQuantizedLinear, {m.In({2, 16}, DType::kU8), m.Real(0.1f), m.Zero(DType::kU8, 128),
                                                    m.In({16, 8}, DType::kS8), m.Real(0.1f)});
    m.g.AddOutput("y", m.Node(Op::kAdd, {y, m.Reals({8})}));
  });
}

TEST(LinearBiasRule, AProductWithAnotherReaderStays) {
  Graphs m;
  const ValueId y = Product(m);
  m.g.AddOutput("y", m.Node(Op::kAdd, {y, m.Reals({8})}));
  m.g.AddOutput("product", y);
  ASSERT_TRUE(ir::Inference::Run(m.g));
  PassRun run;
  const auto changed = pattern::ApplyRules({LinearBias()}, m.g, run);
  ASSERT_TRUE(changed);
  EXPECT_FALSE(*changed);
}

}  // namespace
}  // namespace octavo::passes::fusions
