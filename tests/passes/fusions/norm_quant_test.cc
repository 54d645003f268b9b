// norm_quant.cc: norms write codes, with the same bits, beside their values where these are wanted; each guard has its sentence.
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kWidth = 24;

Fused FuseNorm(const Graph& g) {
  Fused f{g, {}};
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  PassRun context;
  context.misses = &f.misses;
  auto changed = FuseQuantized(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  return f;
}

// x [+ skip] -> norm -> QuantizeLinear; the norm itself is an output where `escapes`.
Graph MakeNorm(Op op, DType y, bool escapes, int64_t saturate = 1) {
  uint64_t seed = 9;
  Graph g;
  g.info.opsets[""] = 23;
  const ir::Type type{DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kWidth}};
  std::vector<ValueId> in{g.AddInput("x", type)};
  if (op == Op::kSkipLayerNorm) in.push_back(g.AddInput("skip", type));
  in.push_back(g.AddConstant(Random({kWidth}, seed++)));
  if (op != Op::kRMSNormalization) in.push_back(g.AddConstant(Random({kWidth}, seed++)));
  const ValueId norm = g.node(g.AddNode(op, std::move(in), 1, {{"epsilon", 1e-5f}}, "norm")).output();
  ir::Attrs attrs;
  if (saturate != 1) attrs.Set("saturate", saturate);
  std::vector<ValueId> quantized{norm, g.AddConstant(Tensor::ScalarF32(0.004f)), g.AddConstant(Tensor::Zeros(y, {}))};
  g.AddOutput("y", g.node(g.AddNode(Op::kQuantizeLinear, std::move(quantized), 1, attrs, "q")).output());
  if (escapes) g.AddOutput("norm", norm);
  return g;
}

TEST(NormQuantRule, NormsWriteCodes) {
  for (Op op : {Op::kLayerNormalization, Op::kRMSNormalization, Op::kSkipLayerNorm}) {
    for (DType y : {DType::kE4M3FN, DType::kE5M2}) {
      for (bool escapes : {false, true}) {
        const Graph before = MakeNorm(op, y, escapes);
        const Fused f = FuseNorm(before);
        ASSERT_EQ(CountOf(f.graph, Op::kNormQuant), 1) << ir::InfoOf(op).name << " " << Name(y);
        EXPECT_EQ(CountOf(f.graph, Op::kQuantizeLinear), 0);
        ir::TensorMap inputs{{"x", Random({3, kWidth}, 7)}};
        if (op == Op::kSkipLayerNorm) inputs["skip"] = Random({3, kWidth}, 8);
        auto want = ir::Interpret(before, inputs), got = ir::Interpret(f.graph, inputs);
        ASSERT_TRUE(want.has_value() && got.has_value());
        for (size_t i = 0; i < want->size(); ++i) EXPECT_TRUE((*want)[i].SameBits((*got)[i]));
        EXPECT_EQ((*got)[0].dtype(), y);
        const std::vector<float> values = (*want)[0].ToFloats();
        EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return v != 0; }));
      }
    }
  }
}

TEST(NormQuantRule, NormsLeaveTheQuantizationThatDoesNotSaturate) {
  const Fused f = FuseNorm(MakeNorm(Op::kLayerNormalization, DType::kE4M3FN, false, 0));
  EXPECT_EQ(CountOf(f.graph, Op::kNormQuant), 0);
  bool said = false;
  for (const NearMiss& m : f.misses) {
    said |= m.rule == "norm_quant" && m.reason == "QuantizeLinear has saturate = 0, and the kernels saturate";
  }
  EXPECT_TRUE(said);
}

TEST(NormQuantRule, RefusesWithASentence) {
  Refuses("the mean or deviation of the norm is used", NormQuant(Op::kLayerNormalization), [](Graphs& m) {
    const NodeId norm = m.g.AddNode(Op::kLayerNormalization, {m.In({2, 8}), m.Filled({8})}, 2, {}, "norm");
    m.g.AddOutput("mean", m.g.node(norm).output(1));
    m.g.AddOutput("y", m.Quantize(m.g.node(norm).output(), 0.1f, 128));
  });
  Refuses("the norm is not f32", NormQuant(Op::kLayerNormalization), [](Graphs& m) {
    const auto half = [&](ValueId v) { return m.Node(Op::kCast, {v}, {{"to", static_cast<int64_t>(DType::kF16)}}); };
    const ValueId norm = m.Node(Op::kLayerNormalization, {m.In({2, 8}, DType::kF16), half(m.Filled({8}))});
    const ValueId scale = m.g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector<uint16_t>{0x2e66}));
    m.g.AddOutput("y", m.Node(Op::kQuantizeLinear, {norm, scale, m.Zero(DType::kU8, 128)}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
