// The int8 rules on fp8 Q/DQ: they fire, the fused op means what stood there, and each guard has its sentence.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/quantize.h"

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

struct Fused {
  Graph graph;
  std::vector<NearMiss> misses;
  int ops = 0, others = 0;  // others: nodes beside the first QuantizeLinear and constants
};
Fused Fuse(const Graph& g) {
  Fused f{g, {}};
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  PassRun context;
  context.misses = &f.misses;
  auto changed = FuseInt8(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  for (NodeId id : f.graph.NodesInOrder()) {
    const Op op = f.graph.node(id).op;
    f.ops += op == Op::kLinearInt8;
    f.others += op != Op::kConstant && op != Op::kLinearInt8;
  }
  return f;
}

TEST(Fp8Rules, FireAndMeanWhatStoodThere) {
  int cases = 0;
  for (DType x : {DType::kE4M3FN, DType::kE5M2, DType::kU8, DType::kS8}) {
    for (DType w : {DType::kE4M3FN, DType::kE5M2, DType::kS8}) {
      if (quant::IsFp8(x) != quant::IsFp8(w)) continue;
      for (DType y : {DType::kF32, DType::kE4M3FN, DType::kE5M2, DType::kU8}) {
        for (Op activation : {Op::kIdentity, Op::kRelu, Op::kGelu}) {
          ++cases;
          const Graph before = Make(
              {.x = x, .w = w, .y = y, .bias = cases % 2 != 0, .activation = activation, .residual = cases % 5 < 2});
          const Fused f = Fuse(before);
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
  const Fused f = Fuse(Make(form));
  EXPECT_EQ(f.ops, 0);
  for (const NearMiss& m : f.misses) {
    if (m.rule == "linear_int8") return m.kind + ": " + m.reason;
  }
  return "";
}

TEST(Fp8Rules, RefuseWithASentence) {
  EXPECT_EQ(Reason({.x = DType::kU8, .y = DType::kF32, .bias = false}),
            "Illegal: one operand is fp8, the other an integer");
  EXPECT_EQ(Reason({.w = DType::kS8, .y = DType::kF32, .bias = false}),
            "Illegal: one operand is fp8, the other an integer");
  EXPECT_EQ(Reason({.y = DType::kF32, .bias = false, .w_zero = 0x38}),
            "Illegal: the weight has a zero point other than 0: quantize weights symmetrically");
}

// What a quantized output forbids leaves the product and bias fused.
TEST(Fp8Rules, LeaveTheQuantizationThatDoesNotSaturate) {
  const Fused f = Fuse(Make({.saturate = 0}));
  EXPECT_EQ(f.ops, 1);
  EXPECT_EQ(f.others, 2);
  bool said = false;
  for (const NearMiss& m : f.misses) said |= m.reason == "QuantizeLinear has saturate = 0, and the kernels saturate";
  EXPECT_TRUE(said);
  const Fused sum = Fuse(Make({.saturate = 0, .residual = true}));  // the sum is fused, its quantization is not
  EXPECT_EQ(sum.ops, 1);
  EXPECT_EQ(sum.others, 2);
}

// x [+ skip] -> norm -> QuantizeLinear; the norm itself is an output where `escapes`.
Graph MakeNorm(Op op, DType y, bool escapes, int64_t saturate = 1) {
  std::mt19937 rng(9);
  Graph g;
  g.info.opsets[""] = 23;
  const ir::Type type{DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}};
  std::vector<ValueId> in{g.AddInput("x", type)};
  if (op == Op::kSkipLayerNorm) in.push_back(g.AddInput("skip", type));
  in.push_back(g.AddConstant(RandomFloats({kDepth}, rng)));
  if (op != Op::kRMSNormalization) in.push_back(g.AddConstant(RandomFloats({kDepth}, rng)));
  const ValueId norm = g.node(g.AddNode(op, std::move(in), 1, {{"epsilon", 1e-5f}}, "norm")).output();
  ir::Attrs attrs;
  if (saturate != 1) attrs.Set("saturate", saturate);
  std::vector<ValueId> quantized{norm, g.AddConstant(Tensor::ScalarF32(0.004f)), g.AddConstant(Scalar(y))};
  g.AddOutput("y", g.node(g.AddNode(Op::kQuantizeLinear, std::move(quantized), 1, attrs, "q")).output());
  if (escapes) g.AddOutput("norm", norm);
  return g;
}

int CountOf(const Graph& g, Op op) {
  int n = 0;
  for (NodeId id : g.NodesInOrder()) n += g.node(id).op == op;
  return n;
}

TEST(Fp8Rules, NormsWriteCodes) {
  for (Op op : {Op::kLayerNormalization, Op::kRMSNormalization, Op::kSkipLayerNorm}) {
    for (DType y : {DType::kE4M3FN, DType::kE5M2}) {
      for (bool escapes : {false, true}) {
        const Graph before = MakeNorm(op, y, escapes);
        const Fused f = Fuse(before);
        ASSERT_EQ(CountOf(f.graph, Op::kNormQuant), 1) << ir::InfoOf(op).name << " " << Name(y);
        EXPECT_EQ(CountOf(f.graph, Op::kQuantizeLinear), 0);
        std::mt19937 rng(7);
        ir::TensorMap inputs{{"x", RandomFloats({3, kDepth}, rng)}};
        if (op == Op::kSkipLayerNorm) inputs["skip"] = RandomFloats({3, kDepth}, rng);
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

TEST(Fp8Rules, NormsLeaveTheQuantizationThatDoesNotSaturate) {
  const Fused f = Fuse(MakeNorm(Op::kLayerNormalization, DType::kE4M3FN, false, 0));
  EXPECT_EQ(CountOf(f.graph, Op::kNormQuant), 0);
  bool said = false;
  for (const NearMiss& m : f.misses) {
    said |= m.rule == "norm_quant" && m.reason == "QuantizeLinear has saturate = 0, and the kernels saturate";
  }
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace octavo::passes::fusions
