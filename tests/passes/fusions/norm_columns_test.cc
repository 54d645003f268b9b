// norm_columns.cc: norms write columns twice, with the same bits; another order and other readers keep the Gather.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

// Norm -> Q -> Gather as the quantizer and `qdq` leave it.
struct Columns {
  Graph g;
  ValueId codes;
  explicit Columns(const std::vector<int64_t>& index, bool quantize_first = true, bool read_twice = false) {
    g.info.opsets[""] = 20;
    const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), 8}});
    const ValueId gamma = g.AddConstant(Tensor::F32({8}, std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2}));
    const ValueId scale = g.AddConstant(Tensor::ScalarF32(0.05f));
    Tensor z = Tensor::Zeros(DType::kU8, {});
    z.mutable_as<uint8_t>()[0] = 100;
    const ValueId zero = g.AddConstant(z);
    const auto node = [this](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
      return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
    };
    const ValueId norm = node(Op::kLayerNormalization, {x, gamma, gamma}, {{"axis", int64_t{-1}}});
    const auto count = static_cast<int64_t>(index.size());
    const ValueId which = g.AddConstant(Tensor::S64({count}, index));
    const ir::Attrs axis{{"axis", int64_t{-1}}};
    ValueId narrow = norm;
    if (quantize_first) narrow = node(Op::kQuantizeLinear, {norm, scale, zero});
    codes = node(Op::kGather, {narrow, which}, axis);
    if (!quantize_first) codes = node(Op::kQuantizeLinear, {codes, scale, zero});
    g.AddOutput("codes", codes);
    if (read_twice) g.AddOutput("narrow", narrow);
    EXPECT_TRUE(ir::Inference::Run(g).has_value());
  }
  std::vector<Tensor> Run() const {
    std::vector<float> x(24);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i));
    auto got = ir::Interpret(g, {{"x", Tensor::F32({3, 8}, x)}});
    EXPECT_TRUE(got.has_value()) << got.error().message;
    return std::move(*got);
  }
  // The ops from the norm on.
  std::vector<Op> Ops() const {
    std::vector<Op> ops;
    for (NodeId id : g.NodesInOrder()) {
      if (g.node(id).op != Op::kConstant) ops.push_back(g.node(id).op);
    }
    return ops;
  }
};

using ::testing::ElementsAre;

TEST(NormColumnsRule, TheNormWritesThem) {
  Columns c({0, 1, 2, 3, 4, 5, 6, 7, 2, 2, 5, 0});
  const std::vector<Tensor> want = c.Run();
  PassRun context;
  ASSERT_TRUE(FuseQuantized(c.g, context).value());
  EXPECT_THAT(c.Ops(), ElementsAre(Op::kNormQuant));
  ASSERT_TRUE(ir::Inference::Run(c.g).has_value());
  EXPECT_EQ(c.g.value(c.g.outputs()[0].value).type.shape->back().number(), 12);
  EXPECT_TRUE(c.Run()[0].SameBits(want[0]));
  EXPECT_EQ(want[0].shape(), (ir::Shape{3, 12}));
}

TEST(NormColumnsRule, AnotherOrderOrAnotherReaderKeepsTheGather) {
  for (Columns c : {Columns({0, 1, 2, 3, 4, 5, 7, 6, 2}), Columns({0, 1, 2}), Columns({0, 1, 2, 3, 4, 5, 6, 7, -1}),
                    Columns({0, 1, 2, 3, 4, 5, 6, 7, 2}, true, true)}) {
    const std::vector<Tensor> want = c.Run();
    PassRun context;
    ASSERT_TRUE(FuseQuantized(c.g, context).value());
    EXPECT_THAT(c.Ops(), ElementsAre(Op::kNormQuant, Op::kGather));
    EXPECT_TRUE(c.Run()[0].SameBits(want[0]));
  }
}

TEST(NormColumnsRule, CodesAreMadeBeforeTheyAreCopied) {
  PassRun context;
  Columns repeats({0, 1, 2, 3, 4, 5, 6, 7, 2}, false);
  const std::vector<Tensor> want = repeats.Run();
  ASSERT_TRUE(canonical::Qdq(repeats.g, context).value());
  EXPECT_THAT(repeats.Ops(), ElementsAre(Op::kLayerNormalization, Op::kQuantizeLinear, Op::kGather));
  EXPECT_TRUE(repeats.Run()[0].SameBits(want[0]));
  Columns selects({0, 1, 2}, false);
  ASSERT_FALSE(canonical::Qdq(selects.g, context).value()) << "more would be quantized";
}

TEST(NormColumnsRule, RefusesWithASentence) {
  Refuses("the columns are not all in their order, and some again", NormColumns(), [](Graphs& m) {
    const NodeId norm = m.g.AddNode(
        Op::kNormQuant, {m.In({2, 8}), {}, m.Filled({8}), m.Filled({8}), m.Real(0.1f), m.Zero(DType::kU8, 9)}, 2, {},
        "norm");
    m.g.DropOutput(norm, 0);
    m.g.AddOutput("y", m.Node(Op::kGather, {m.g.node(norm).output(1), m.Ints({1, 0})}, {{"axis", int64_t{-1}}}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
