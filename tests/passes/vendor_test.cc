// Graphs that arrive quantized: the integer form fires on what dynamic quantizers write and gives the same bits; what
// it leaves, and what keeps attention out of int8, is said with the node that stands in the way.
#include "octavo/passes/vendor/vendor.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/report.h"

namespace octavo::passes::vendor {
namespace {

using ir::Dim;
using ir::DType;
using ir::Tensor;

class Builder {
 public:
  Builder() { g.info.opsets[""] = 18; }
  ValueId Input(const std::string& name, ir::SymShape shape, DType dtype = DType::kF32) {
    return g.AddInput(name, {dtype, std::move(shape)});
  }
  ValueId Make(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}, const std::string& name = {}) {
    return g
        .node(g.AddNode(op, std::move(in), 1, std::move(attrs),
                        name.empty() ? "n" + std::to_string(g.node_count()) : name))
        .output();
  }
  ValueId Scalar(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }
  ValueId Codes(DType dtype, ir::Shape shape, uint8_t first) {
    std::vector<uint8_t> v(static_cast<size_t>(ir::ElementCount(shape)));
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint8_t>(first + 37 * i);
    return g.AddConstant(Tensor::Of<uint8_t>(dtype, std::move(shape), v));
  }
  ValueId Zero(DType dtype) { return g.AddConstant(Tensor::Zeros(dtype, {})); }
  ValueId QuantizeDequantize(ValueId v, DType dtype, const std::string& name) {
    const ValueId q = Make(Op::kQuantizeLinear, {v, Scalar(0.05f), Zero(dtype)}, {}, name);
    return Make(Op::kDequantizeLinear, {q, Scalar(0.05f), Zero(dtype)});
  }
  Graph g;
};

// Mul(Cast(MatMulInteger(x, w)), Mul(x_scale, w_scale)); `w` invalid: a constant weight.
ValueId Chain(Builder& b, ValueId w, ValueId w_scale, ValueId w_zero) {
  const ValueId x = b.Input("x", {2, 3, 4});
  const Node q = b.g.node(b.g.AddNode(Op::kDynamicQuantizeLinear, {x}, 3, {}, "dynamic"));
  if (!w.valid()) w = b.Codes(DType::kS8, {4, 5}, 11);
  const ValueId acc = b.Make(Op::kMatMulInteger, {q.output(0), w, q.output(2), w_zero}, {}, "product");
  const ValueId f = b.Make(Op::kCast, {acc}, {{"to", int64_t{1}}});
  return b.Make(Op::kMul, {f, b.Make(Op::kMul, {q.output(1), w_scale})}, {}, "scaled");
}

std::vector<std::string> RunIntegerForm(Graph& g, bool expected) {
  PassRun context;
  const auto changed = IntegerForm(g, context);
  EXPECT_TRUE(changed.has_value());
  EXPECT_EQ(*changed, expected);
  return context.log;
}

TEST(IntegerForm, SameBits) {
  for (const bool per_column : {false, true}) {
    Builder b;
    const ValueId scale =
        per_column ? b.g.AddConstant(Tensor::F32({5}, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f})) : b.Scalar(0.3f);
    b.g.AddOutput("y", Chain(b, {}, scale, b.Zero(DType::kS8)));
    Graph g = b.g;
    RunIntegerForm(g, true);
    const ir::TensorMap inputs = {{"x", Tensor::F32({2, 3, 4}, {1,   -2,  3,   4,   5, 6, -7, 8, 9, 10, 11, 12,
                                                                .1f, .2f, .3f, .4f, 0, 0, 0,  0, 1, 1,  2,  2})}};
    const auto want = ir::Interpret(b.g, inputs), got = ir::Interpret(g, inputs);
    ASSERT_TRUE(want && got);
    EXPECT_TRUE(want->at(0).SameBits(got->at(0)));
    EXPECT_NE(want->at(0).GetDouble(0), 0.0);
    for (NodeId id : g.NodesInOrder()) EXPECT_NE(g.node(id).op, Op::kMatMulInteger);
  }
}

TEST(IntegerForm, LeavesWithALine) {
  {
    Builder b;
    b.g.AddOutput("y", Chain(b, b.Input("w", {4, 5}, DType::kS8), b.Scalar(0.3f), b.Zero(DType::kS8)));
    const auto log = RunIntegerForm(b.g, false);
    ASSERT_EQ(log.size(), 1u);
    EXPECT_NE(log[0].find("scaled stays as it is: its weight is not a constant matrix"), std::string::npos) << log[0];
  }
  {
    Builder b;
    b.g.AddOutput("y", Chain(b, {}, b.Input("ws", {5}), b.Zero(DType::kS8)));
    const auto log = RunIntegerForm(b.g, false);
    ASSERT_EQ(log.size(), 1u);
    EXPECT_NE(log[0].find("its scales are not one number"), std::string::npos) << log[0];
  }
  {
    Builder b;
    b.g.AddOutput("y", Chain(b, {}, b.Scalar(0.3f), b.Input("wz", {}, DType::kS8)));
    const auto log = RunIntegerForm(b.g, false);
    ASSERT_EQ(log.size(), 1u);
    EXPECT_NE(log[0].find("its zero points"), std::string::npos) << log[0];
  }
}

struct Places {
  DType operands = DType::kU8;
  bool scores = false, p = true, v = true;
};
std::string WhyOf(const Places& at) {
  Builder b;
  const ir::SymShape shape{1, 2, 3, 4};
  ValueId q = b.Input("q", shape), k = b.Input("k", {1, 2, 4, 3}), v = b.Input("v", shape);
  q = b.QuantizeDequantize(q, at.operands, "q_quantize");
  k = b.QuantizeDequantize(k, at.operands, "k_quantize");
  if (at.v) v = b.QuantizeDequantize(v, at.operands, "v_quantize");
  ValueId s = b.Make(Op::kMatMul, {q, k});
  if (at.scores) s = b.QuantizeDequantize(s, DType::kU8, "scores_quantize");
  ValueId p = b.Make(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}, "softmax");
  if (at.p) p = b.QuantizeDequantize(p, DType::kU8, "p_quantize");
  b.g.AddOutput("y", b.Make(Op::kMatMul, {p, v}));
  EXPECT_TRUE(ir::Inference::Run(b.g));
  EXPECT_TRUE(IsQuantized(b.g));
  std::vector<NearMiss> misses;
  PassRun context;
  context.misses = &misses;
  EXPECT_TRUE(WhyNotInt8(b.g, context));
  if (misses.empty()) return "";
  EXPECT_EQ(misses[0].root, "softmax");
  return misses[0].reason;
}

TEST(WhyNotInt8, SaysWhatStandsInTheWay) {
  EXPECT_EQ(WhyOf({}), "");
  EXPECT_EQ(WhyOf({.scores = true}), "");  // they pass through codes in the kernel too
  EXPECT_NE(WhyOf({.p = false}).find("P (the probabilities) is float: no DequantizeLinear stands in front"),
            std::string::npos);
  EXPECT_NE(WhyOf({.v = false}).find("V is float: no DequantizeLinear stands in front"), std::string::npos);
  EXPECT_NE(WhyOf({.operands = DType::kS16}).find("Q is quantized to s16"), std::string::npos);
  EXPECT_EQ(WhyOf({.operands = DType::kE4M3FN}),
            "P is quantized to u8, Q to e4m3fn: the kernels take all integers or all fp8");
}

// An attention op of ONNX Runtime that has no standard form here: the report says what import's rule says.
TEST(Report, OpaqueAttentionHasItsReason) {
  Builder b;
  const ValueId x = b.Input("x", {1, 3, 4});
  const NodeId id = b.g.AddOpaque("com.microsoft", "MultiHeadAttention",
                                  {x, x, x, {}, {}, {}, {}, {}, b.Input("past", {1}, DType::kS32)}, 1,
                                  {{"num_heads", int64_t{2}}}, "mha");
  b.g.AddOutput("y", b.g.node(id).output());
  Report report = TakeInventory(b.g);
  Judge(b.g, PassRun(), report);
  ASSERT_EQ(report.candidates.size(), 1u);
  EXPECT_EQ(report.candidates[0].status, "left");
  EXPECT_NE(report.candidates[0].reason.find(
                "node 'mha' (com.microsoft.MultiHeadAttention): it has the input past_sequence_length"),
            std::string::npos)
      << report.candidates[0].reason;
}

// y = QLinearMatMul(x, w) with this scale of w, and its zero point.
ValueId Requantized(Builder& b, ValueId x, ValueId w_scale, ValueId w_zero, const std::string& name,
                    float y_scale = 0.1f) {
  return b.Make(Op::kQLinearMatMul,
                {x, b.Scalar(0.1f), b.Zero(DType::kU8), b.Codes(DType::kS8, {4, 4}, 3), w_scale, w_zero,
                 b.Scalar(y_scale), b.Zero(DType::kU8)},
                {}, name);
}

// MatMul(DequantizeLinear(x), DequantizeLinear(w u8)) with this zero point.
Graph UnsignedWeights(uint8_t zero, bool codes = true) {
  Builder b;
  const ValueId in = b.Input("x", {1, 3, 4}), x = codes ? b.QuantizeDequantize(in, DType::kU8, "codes") : in;
  const ValueId z = b.g.AddConstant(Tensor::Of<uint8_t>(DType::kU8, {}, std::vector<uint8_t>{zero}));
  const ValueId w = b.Make(Op::kDequantizeLinear, {b.Codes(DType::kU8, {4, 4}, 3), b.Scalar(0.1f), z});
  b.g.AddOutput("y", b.Make(Op::kMatMul, {x, w}, {}, "product"));
  return std::move(b.g);
}

TEST(IntegerForm, WeightsAround128AreSigned) {
  const Graph before = UnsignedWeights(128);
  Graph after = before;
  RunIntegerForm(after, true);
  for (NodeId id : after.NodesInOrder()) {
    const Node& n = after.node(id);
    if (n.op != Op::kMatMul) continue;
    EXPECT_EQ(after.value(after.Producer(n.input(1))->input(0)).type.dtype, DType::kS8);
  }
  const ir::TensorMap inputs = {{"x", Tensor::F32({1, 3, 4}, {1, -2, 3, 4, 5, 6, -.7f, 8, .9f, 10, 1.1f, 12})}};
  const auto want = ir::Interpret(before, inputs), got = ir::Interpret(after, inputs);
  ASSERT_TRUE(want && got);
  EXPECT_TRUE((*want)[0].SameBits((*got)[0]));

  Graph other = UnsignedWeights(90, false);  // centered_test has those around any zero point
  RunIntegerForm(other, false);
  std::vector<NearMiss> misses;
  PassRun run;
  run.misses = &misses;
  ASSERT_TRUE(WhyNotInt8(other, run));
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_NE(misses[0].reason.find("its weights are u8 and some lie more than 128 below or 127 above their zero point, which takes an "
                                 "activation in codes with one scale"),
            std::string::npos);
}

TEST(QOperator, EveryCandidateHasItsReason) {
  Builder b;
  const ValueId x = b.Input("x", {1, 3, 4}, DType::kU8);
  for (const char* name : {"q_proj", "k_proj"})
    b.g.AddOutput(name, Requantized(b, x, b.Scalar(0.1f), b.Zero(DType::kS8), name));
  const std::vector<Candidate> found = QOperatorCandidates(b.g);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kind, "linear");
  EXPECT_EQ(found[2].kind, "qkv");
  EXPECT_EQ(found[2].nodes, (std::vector<std::string>{"q_proj", "k_proj"}));
  for (const Candidate& c : found) EXPECT_NE(c.reason.find("use recipe quantized, which fuses it"), std::string::npos);
}

TEST(QOperator, ItsRoundingIsThatOfAProductWithOneFactor) {
  std::mt19937 gen(28);
  for (int way = 0; way < 40; ++way) {
    Builder b;
    const ValueId x = b.Input("x", {1, 3, 4}, DType::kU8);
    const auto any = [&] { return static_cast<float>(gen() % 1000 + 1) / 4096; };
    // Powers of two as factors give ties, where the order of rounding and adding is seen.
    const ValueId scale =
        way % 2 == 0 ? b.g.AddConstant(Tensor::F32({4}, {any(), 0.25f, any(), 0.5f})) : b.Scalar(any());
    const float y_scale = way % 4 < 2 ? 0.1f : any();
    b.g.AddOutput("y", Requantized(b, x, scale, b.Zero(DType::kS8), "product", y_scale));
    Graph fused = b.g;
    PassRun run;
    auto changed = IntegerForm(fused, run);
    ASSERT_TRUE(changed && *changed);
    EXPECT_TRUE(QOperatorCandidates(fused).empty());
    Tensor codes = Tensor::Empty(DType::kU8, {1, 3, 4});
    for (uint8_t& c : codes.mutable_as<uint8_t>()) c = static_cast<uint8_t>(gen());
    const auto want = ir::Interpret(b.g, {{"x", codes}}), got = ir::Interpret(fused, {{"x", codes}});
    ASSERT_TRUE(want && got);
    EXPECT_TRUE((*want)[0].SameBits((*got)[0])) << "way " << way;
  }
}

TEST(QOperator, StaysWhereNoKernelRoundsSo) {
  const auto left = [](const std::function<ValueId(Builder&, ValueId)>& make) {
    Builder b;
    b.g.AddOutput("y", make(b, b.Input("x", {1, 3, 4}, DType::kU8)));
    PassRun run;
    EXPECT_TRUE(IntegerForm(b.g, run));
    const std::vector<Candidate> found = QOperatorCandidates(b.g);
    return found.empty() ? std::string() : found[0].reason;
  };
  const auto has = [](const std::string& reason, const char* what) {
    EXPECT_NE(reason.find(what), std::string::npos) << reason;
    EXPECT_NE(reason.find("write the model in QDQ format"), std::string::npos) << reason;
  };
  has(left([](Builder& b, ValueId x) { return Requantized(b, x, b.Input("scale", {}), b.Zero(DType::kS8), "p"); }),
      "a scale or zero point of QLinearMatMul is neither one constant number nor one for each column");
  has(left([](Builder& b, ValueId x) { return Requantized(b, x, b.Scalar(-0.1f), b.Zero(DType::kS8), "p"); }),
      "the scales of QLinearMatMul give a factor that is no positive number");
  has(left([](Builder& b, ValueId x) {
        return b.Make(Op::kQLinearMatMul,
                      {x, b.g.AddConstant(Tensor::Zeros(DType::kF16, {})), b.Zero(DType::kU8),
                       b.Codes(DType::kS8, {4, 4}, 3), b.g.AddConstant(Tensor::Zeros(DType::kF16, {})),
                       b.Zero(DType::kS8), b.g.AddConstant(Tensor::Zeros(DType::kF16, {})), b.Zero(DType::kU8)});
      }),
      "the scales of QLinearMatMul are not float32");
}

}  // namespace
}  // namespace octavo::passes::vendor
