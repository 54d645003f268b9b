// Codes of probabilities become codes of exponentials: what that keeps of long rows, that the fused op has the same bits, what is
// left alone, and what the rule refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/tests/passes/coded_attention.h"

namespace octavo::passes::fusions {
namespace {

using namespace coded;  // NOLINT: the vocabulary of the test

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

std::string Left(const CodedForm& f) {
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
