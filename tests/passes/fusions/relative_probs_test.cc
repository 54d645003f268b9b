// Codes of probabilities become codes of exponentials: what that keeps of long rows, that the fused op has the same bits, what is
// left alone, and what the rule refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;
using ir::TensorMap;

struct Form {
  bool guard = false, reader = false, quantized_output = true;
  float p_scale = 1 / 255.0f;
  int64_t p_zero = 0;
};

// Attention of 2 heads of 8 in Q/DQ: codes q [1,2,3,8], kT [1,2,8,keys], v [1,2,keys,8].
struct Attention : Maker {
  explicit Attention(const Form& f) : Maker(3) {
    const auto input = [&](const char* name, ir::SymShape shape, float scale, int64_t zero) {
      return Dequantize(g.AddInput(name, {DType::kU8, std::move(shape)}), scale, zero);
    };
    const ir::Dim keys = ir::Dim::Symbol("keys");
    const ValueId q = input("q", {1, 2, 3, 8}, 0.01f, 128), k = input("k", {1, 2, 8, keys}, 0.01f, 120),
                  v = input("v", {1, 2, keys, 8}, 0.02f, 100);
    const ValueId mask = g.AddInput("mask", {DType::kF32, ir::SymShape{1, 1, 3, keys}});
    scores = Node(Op::kAdd, {Node(Op::kMul, {Node(Op::kMatMul, {q, k}), Real(0.35f)}), mask});
    ValueId p = Node(Op::kSoftmax, {scores}, {{"axis", int64_t{-1}}});
    if (f.guard) p = Node(Op::kWhere, {Node(Op::kIsNaN, {p}), Real(0.0f), p});
    codes = Quantize(p, f.p_scale, f.p_zero);
    if (f.reader) g.AddOutput("codes", codes);
    ValueId o = Node(Op::kMatMul, {Dequantize(codes, f.p_scale, f.p_zero), v});
    if (f.quantized_output) o = Quantize(o, 0.02f, 100);
    g.AddOutput("o", o);
    EXPECT_TRUE(ir::Inference::Run(g).has_value());
  }
  ValueId scores, codes;
};

// Queries that weigh `keys` keys nearly alike; the last row sees none.
TensorMap Inputs(int64_t keys, bool hide_all) {
  std::mt19937 rng(9);
  const auto bytes = [&](ir::Shape shape) {
    Tensor t = Tensor::Empty(DType::kU8, std::move(shape));
    for (uint8_t& b : t.mutable_as<uint8_t>()) b = static_cast<uint8_t>(rng());
    return t;
  };
  Tensor mask = Tensor::Zeros(DType::kF32, {1, 1, 3, keys});
  for (int64_t j = 0; hide_all && j < keys; ++j)
    mask.mutable_as<float>()[static_cast<size_t>(2 * keys + j)] = -INFINITY;
  return {{"q", bytes({1, 2, 3, 8})}, {"k", bytes({1, 2, 8, keys})}, {"v", bytes({1, 2, keys, 8})}, {"mask", mask}};
}

std::vector<Tensor> Interpreted(const Graph& g, const TensorMap& inputs) {
  auto out = ir::Interpret(g, inputs);
  EXPECT_TRUE(out.has_value()) << out.error().message;
  return *out;
}

// As real numbers, from the codes.
double Off(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < want[0].size(); ++i) {
    error += std::pow(got[0].GetDouble(i) - want[0].GetDouble(i), 2);
    size += std::pow(want[0].GetDouble(i), 2);
  }
  EXPECT_GT(size, 0);
  return std::sqrt(error / size);
}

Graph WithFloatProbs(Graph g, ValueId codes) {
  const ir::Node q = g.node(g.value(codes).producer);
  const ir::Node dq = g.node(g.value(codes).uses[0].node);
  g.ReplaceAllUses(dq.output(), q.input(0));
  return g;
}

TEST(RelativeProbs, KeepLongRowsThatProbabilitiesLose) {
  Attention a({.quantized_output = false});
  const TensorMap inputs = Inputs(1500, false);
  const auto exact = Interpreted(WithFloatProbs(a.g, a.codes), inputs), before = Interpreted(a.g, inputs);
  PassRun context;
  ASSERT_TRUE(RelativeProbs(a.g, context).value_or(false));
  EXPECT_TRUE(context.log.empty());
  ASSERT_TRUE(ir::Inference::Run(a.g).has_value());
  const auto after = Interpreted(a.g, inputs);
  EXPECT_GT(Off(before, exact), 0.5) << "the rows are not flat: the test shows nothing";
  EXPECT_LT(Off(after, exact), 0.02);
  EXPECT_FALSE(RelativeProbs(a.g, context).value_or(true)) << "it rewrites what it has made";
}

TEST(RelativeProbs, FuseToTheSameBits) {
  for (int bits = 0; bits < 8; ++bits) {
    Attention a({.guard = (bits & 1) != 0, .quantized_output = (bits & 2) != 0});
    PassRun context;
    if ((bits & 4) != 0) context.weight_limit = 64;  // reduced range: codes of 7 bits
    ASSERT_TRUE(RelativeProbs(a.g, context).value_or(false));
    ASSERT_TRUE(ir::Inference::Run(a.g).has_value());
    Graph fused = a.g;
    ASSERT_TRUE(FuseQuantized(fused, context).value_or(false));
    int ops = 0;
    for (NodeId id : fused.NodesInOrder()) {
      const ir::Node& n = fused.node(id);
      EXPECT_TRUE(n.op != Op::kExp && n.op != Op::kDiv) << "left beside the op";
      if (n.op != Op::kQuantizedSdpa) continue;
      ops += n.attrs.Int("p_relative", 0) == 1;
      EXPECT_EQ(fused.ConstantOf(n.input(9))->GetDouble(0), double{(bits & 4) != 0 ? 1 / 128.0f : 1 / 255.0f});
    }
    ASSERT_EQ(ops, 1) << bits;
    for (int64_t keys : {1, 40, 700}) {
      const TensorMap inputs = Inputs(keys, keys == 40);
      const auto want = Interpreted(a.g, inputs), got = Interpreted(fused, inputs);
      EXPECT_TRUE(want[0].SameBits(got[0])) << bits << " " << keys;
      if (keys == 40) {  // a row without keys is 0
        const int64_t last = want[0].size() - 1;
        EXPECT_EQ(want[0].GetDouble(last), a.g.value(a.g.outputs()[0].value).type.dtype == DType::kF32 ? 0.0 : 100.0);
      }
    }
  }
}

std::string Left(const Form& f) {
  Attention a(f);
  PassRun context;
  EXPECT_FALSE(RelativeProbs(a.g, context).value_or(true));
  return context.log.empty() ? "" : context.log[0];
}

TEST(RelativeProbs, SaysWhatItLeaves) {
  EXPECT_NE(Left({.p_scale = 1 / 200.0f}).find("they are not those of 1/255"), std::string::npos);
  EXPECT_NE(Left({.p_zero = 7}).find("they are not those of 1/255"), std::string::npos);
  EXPECT_NE(Left({.reader = true}).find("no operand of one product"), std::string::npos);
}

// The rule's guard: a graph like the pass makes it, but for one number.
TEST(RelativeProbs, TheRuleRefusesWhatMeansSomethingElse) {
  const auto reason = [](Op op, size_t slot, const Tensor& constant) {
    Attention a({});
    PassRun context;
    EXPECT_TRUE(RelativeProbs(a.g, context).value_or(false));
    for (NodeId id : a.g.NodesInOrder()) {
      const ir::Node& n = a.g.node(id);
      const bool of_codes = n.op != Op::kDequantizeLinear || a.g.IsFrom(n.input(0), Op::kQuantizeLinear);
      if (n.op == op && of_codes) a.g.SetInput(id, slot, a.g.AddConstant(constant));
    }
    EXPECT_TRUE(ir::Inference::Run(a.g).has_value());
    std::vector<NearMiss> misses;
    context.misses = &misses;
    EXPECT_TRUE(FuseQuantized(a.g, context).has_value());
    std::string best;
    int depth = -1;
    for (const NearMiss& m : misses) {
      if (m.rule.starts_with("quantized_sdpa_relative") && m.matched > depth) depth = m.matched, best = m.reason;
    }
    return best;
  };
  EXPECT_EQ(reason(Op::kReduceMax, 1, Tensor::S64({1}, {-2})), "the maximum of the scores is not that of each row");
  EXPECT_EQ(reason(Op::kReduceSum, 1, Tensor::S64({1}, {-2})), "the sum of the codes is not that of each row");
  EXPECT_EQ(reason(Op::kDequantizeLinear, 1, Tensor::ScalarF32(0.5f)),
            "codes of exponentials are not dequantized by 1");
  Tensor seven = Tensor::Zeros(DType::kU8, {});
  seven.mutable_as<uint8_t>()[0] = 7;
  EXPECT_EQ(reason(Op::kDequantizeLinear, 2, seven), "the zero point of exponentials is not the lowest code");
}

}  // namespace
}  // namespace octavo::passes::fusions
