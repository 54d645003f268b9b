// quantized_linear.cc and linear_residual.cc on integers and fp8: they fire, the fused op means what stood there, and each guard has its sentence.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kDepth = 24, kWidth = 10;

Tensor RandomFloats(ir::Shape shape, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& v : t.mutable_as<float>()) v = normal(rng);
  return t;
}

struct Form {
  DType x = DType::kE4M3FN, w = DType::kE4M3FN, y = DType::kE4M3FN;  // y: kF32: not quantized
  bool bias = true;
  Op activation = Op::kIdentity;
  int64_t saturate = 1;
  uint8_t w_zero = 0;  // code of the weight's zero point
  bool residual = false;
};

Tensor Scalar(DType t, uint8_t code = 0) {
  Tensor zero = Tensor::Zeros(t, {});
  zero.mutable_as<uint8_t>()[0] = code;
  return zero;
}

Graph Make(const Form& f) {
  std::mt19937 rng(5);
  Graph g;
  g.info.opsets[""] = 19;
  const auto node = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  };
  const auto real = [&](float v) { return g.AddConstant(Tensor::ScalarF32(v)); };
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}});
  const ValueId scale = real(0.01f), zero = g.AddConstant(Scalar(f.x));
  const ValueId xd = node(Op::kDequantizeLinear, {node(Op::kQuantizeLinear, {x, scale, zero}), scale, zero});
  auto columns = quantize::QuantizeColumns(RandomFloats({kDepth, kWidth}, rng), f.w);
  std::vector<ValueId> w{g.AddConstant(columns->codes), g.AddConstant(columns->scale)};
  if (f.w_zero != 0) {
    Tensor z = Tensor::Zeros(f.w, {kWidth});
    z.mutable_as<uint8_t>()[3] = f.w_zero;
    w.push_back(g.AddConstant(z));
  }
  ValueId y = node(Op::kMatMul, {xd, node(Op::kDequantizeLinear, w, {{"axis", int64_t{1}}})});
  if (f.bias) y = node(Op::kAdd, {y, g.AddConstant(RandomFloats({kWidth}, rng))});
  if (f.activation != Op::kIdentity) y = node(f.activation, {y});
  if (f.residual)
    y = node(Op::kAdd, {g.AddInput("residual", {DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kWidth}}), y});
  if (f.y != DType::kF32) {
    ir::Attrs attrs;
    if (f.saturate != 1) attrs.Set("saturate", f.saturate);
    y = node(Op::kQuantizeLinear, {y, real(0.02f), g.AddConstant(Scalar(f.y))}, attrs);
  }
  g.AddOutput("y", y);
  return g;
}

struct FusedLinear {
  Graph graph;
  std::vector<NearMiss> misses;
  int ops = 0, others = 0;  // others: nodes beside the first QuantizeLinear and constants
};
FusedLinear FuseLinear(const Graph& g) {
  FusedLinear f{g, {}};
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  PassRun context;
  context.misses = &f.misses;
  auto changed = FuseQuantized(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  for (NodeId id : f.graph.NodesInOrder()) {
    const Op op = f.graph.node(id).op;
    f.ops += op == Op::kQuantizedLinear;
    f.others += op != Op::kConstant && op != Op::kQuantizedLinear;
  }
  return f;
}

TEST(QuantizedLinearRule, FiresAndMeansWhatStoodThere) {
  int cases = 0;
  for (DType x : {DType::kE4M3FN, DType::kE5M2, DType::kU8, DType::kS8}) {
    for (DType w : {DType::kE4M3FN, DType::kE5M2, DType::kS8}) {
      if (quant::IsFp8(x) != quant::IsFp8(w)) continue;
      for (DType y : {DType::kF32, DType::kE4M3FN, DType::kE5M2, DType::kU8}) {
        for (Op activation : {Op::kIdentity, Op::kRelu, Op::kGelu}) {
          ++cases;
          const Graph before = Make(
              {.x = x, .w = w, .y = y, .bias = cases % 2 != 0, .activation = activation, .residual = cases % 5 < 2});
          const FusedLinear f = FuseLinear(before);
          ASSERT_EQ(f.ops, 1) << Name(x) << " " << Name(w) << " " << Name(y);
          EXPECT_EQ(f.others, 1);
          std::mt19937 rng(7);
          ir::TensorMap inputs{{"x", RandomFloats({3, kDepth}, rng)}};
          if (cases % 5 < 2) inputs["residual"] = RandomFloats({3, kWidth}, rng);
          auto want = ir::Interpret(before, inputs), got = ir::Interpret(f.graph, inputs);
          ASSERT_TRUE(want.has_value() && got.has_value());
          EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
          EXPECT_EQ((*want)[0].dtype(), y);
          const std::vector<float> values = (*want)[0].ToFloats();
          EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return v != 0; }));
        }
      }
    }
  }
}

std::string Reason(const Form& form) {
  const FusedLinear f = FuseLinear(Make(form));
  EXPECT_EQ(f.ops, 0);
  for (const NearMiss& m : f.misses) {
    if (m.rule == "quantized_linear") return m.kind + ": " + m.reason;
  }
  return "";
}

TEST(QuantizedLinearRule, RefusesWithASentence) {
  EXPECT_EQ(Reason({.x = DType::kU8, .y = DType::kF32, .bias = false}),
            "Illegal: one operand is fp8, the other an integer");
  EXPECT_EQ(Reason({.w = DType::kS8, .y = DType::kF32, .bias = false}),
            "Illegal: one operand is fp8, the other an integer");
  EXPECT_EQ(Reason({.y = DType::kF32, .bias = false, .w_zero = 0x38}),
            "Illegal: the weight has a zero point other than 0: quantize weights symmetrically");
}

// What a quantized output forbids leaves the product and bias fused.
TEST(QuantizedLinearRule, LeavesTheQuantizationThatDoesNotSaturate) {
  const FusedLinear f = FuseLinear(Make({.saturate = 0}));
  EXPECT_EQ(f.ops, 1);
  EXPECT_EQ(f.others, 2);
  bool said = false;
  for (const NearMiss& m : f.misses) said |= m.reason == "QuantizeLinear has saturate = 0, and the kernels saturate";
  EXPECT_TRUE(said);
  const FusedLinear sum =
      FuseLinear(Make({.saturate = 0, .residual = true}));  // the sum is fused, its quantization is not
  EXPECT_EQ(sum.ops, 1);
  EXPECT_EQ(sum.others, 2);
}

TEST(QuantizedLinearRule, RefusesWhatNoKernelTakes) {
  const auto product = [](Graphs& m, ValueId scale, int64_t axis) {
    const ValueId w = m.Node(Op::kDequantizeLinear, {m.Codes({16, 8}), scale}, {{"axis", axis}});
    return m.Node(Op::kMatMul, {m.Coded(m.In({2, 16}), 0.1f, 128), w});
  };
  Refuses("the weight's scale is neither per tensor nor per output column (16 values, axis 0)",
          QuantizedLinear(false, false), [&](Graphs& m) { m.g.AddOutput("y", product(m, m.Filled({16}), 0)); });
  Refuses("its gate has the slope 1.7019999, the kernel's is 1.702", QuantizedLinear(false, true), [&](Graphs& m) {
    const ValueId y = m.Node(Op::kAdd, {product(m, m.Filled({8}), 1), m.Filled({8})}),
                  slope = m.Real(std::nextafter(1.702f, 1.0f));
    m.g.AddOutput("y", m.Node(Op::kMul, {y, m.Node(Op::kSigmoid, {m.Node(Op::kMul, {y, slope})})}));
  });
  Refuses("the product is f16, for which there is no kernel: its scales must be f32", QuantizedLinear(false, false),
          [](Graphs& m) {
            const ValueId scale = m.g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector<uint16_t>{0x2e66}));
            const ValueId x =
                m.Node(Op::kDequantizeLinear, {m.In({2, 16}, DType::kU8), scale, m.Zero(DType::kU8, 128)});
            m.g.AddOutput("y", m.Node(Op::kMatMul, {x, m.Node(Op::kDequantizeLinear, {m.Codes({16, 8}), scale})}));
          });
}

}  // namespace
}  // namespace octavo::passes::fusions
