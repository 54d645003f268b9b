// linear_activation.cc: each activation behind a product that the pass `dynamic` made becomes its attribute.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;

ValueId Product(Graphs& m) {
  return m.Linear(m.Input("x", {2, 5, 16}, DType::kU8), m.Real(0.02f), m.Zero(DType::kU8, 100));
}

ValueId Gated(Graphs& m, ValueId x, float slope) {
  const ValueId steeper = slope == 1.0f ? x : m.Node(Op::kMul, {x, m.Real(slope)});
  return m.Node(Op::kMul, {x, m.Node(Op::kSigmoid, {steeper})});
}

struct Case {
  std::string attribute;
  std::function<ValueId(Graphs&, ValueId)> build;
};

TEST(LinearActivationRule, EachFiresAndMeansTheSame) {
  const auto one = [](Op op, ir::Attrs attrs = {}) {
    return [op, attrs](Graphs& m, ValueId x) { return m.Node(op, {x}, attrs); };
  };
  const Case cases[] = {{"gelu", one(Op::kGelu)},
                        {"gelu_tanh", one(Op::kGelu, {{"approximate", "tanh"}})},
                        {"relu", one(Op::kRelu)},
                        {"sigmoid", one(Op::kSigmoid)},
                        {"tanh", one(Op::kTanh)},
                        {"silu", [](Graphs& m, ValueId x) { return Gated(m, x, 1.0f); }},
                        {"quick_gelu", [](Graphs& m, ValueId x) { return Gated(m, x, 1.702f); }}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.attribute);
    Graphs m;
    m.g.AddOutput("y", c.build(m, Product(m)));
    ASSERT_TRUE(ir::Inference::Run(m.g));
    Graph fused = m.g;
    PassRun run;
    const auto changed = pattern::ApplyRules({LinearActivation()}, fused, run);
    ASSERT_TRUE(changed && *changed);
    const Node& linear = *fused.Producer(fused.outputs()[0].value);
    ASSERT_EQ(linear.op, Op::kQuantizedLinear);
    EXPECT_EQ(linear.attrs.Str("activation", ""), c.attribute);
    ir::Tensor x = ir::Tensor::Empty(DType::kU8, {2, 5, 16});
    uint8_t code = 0;
    for (uint8_t& v : x.mutable_as<uint8_t>()) v = code += 7;
    // Gelu is the one that the body spells otherwise: rounding of values up to a few hundred.
    EXPECT_LE(Difference(m.g, fused, {{"x", x}}), c.attribute.starts_with("gelu") ? 1e-4 : 0.0);
  }
}

TEST(LinearActivationRule, RefusesWithASentence) {
  Refuses("'slope' is 1.6, not 1.702", LinearActivation(), [](Graphs& m) {
    m.g.AddOutput("y", Gated(m, Product(m), 1.6f));
  });
  Refuses("its gate has the slope 1.7019999, the kernel's is 1.702", LinearActivation(), [](Graphs& m) {
    m.g.AddOutput("y", Gated(m, Product(m), std::nextafter(1.702f, 0.0f)));
  });
  Refuses("the Linear has more than a bias behind it already", LinearActivation(), [](Graphs& m) {
    const ValueId y = Product(m);
    m.g.SetAttr(m.g.value(y).producer, "activation", std::string("relu"));
    m.g.AddOutput("y", m.Node(Op::kTanh, {y}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
