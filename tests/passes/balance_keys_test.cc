// balance_keys: channels of queries and keys meet half way, what attention computes stays; and what the pass leaves alone.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

struct Options {
  bool read_twice = false;  // K is an output, too, as a cache is
  int64_t k_rank = 4;
  float outlier = 50;  // of a channel of K, and of one of Q the inverse
  DType codes = DType::kU8;
};

Graphs Attention(const Options& o) {
  Graphs m;
  const ValueId q = m.Input("q", {1, 2, 5, 4});
  const ValueId k = o.k_rank == 4 ? m.Input("k", {1, 2, 5, 4}) : m.Input("k", {1, 5, 8});
  const ValueId v = m.Input("v", {1, 2, 5, 4});
  if (o.read_twice) m.g.AddOutput("present", m.Node(Op::kIdentity, {k}));
  ir::Attrs attrs = m.Heads(2, 2);
  attrs.Set("k_rank", o.k_rank), attrs.Set("scale", 0.5f);
  m.g.AddOutput("y", m.Node(Op::kSdpa, {q, k, v}, attrs));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m;
}

// Runs the pass with what a calibration would know.
Result<bool> Balance(Graph& g, PassRun& run, const Options& o) {
  const quant::QParams params =
      o.codes == DType::kU8 ? quant::AffineParams(-o.outlier, o.outlier, DType::kU8) : quant::QParams{o.codes, 1.0f, 0};
  const quant::QParams of_q = o.codes == DType::kU8 ? quant::AffineParams(-1, 1, DType::kU8) : params;
  static quant::QParams known[2];
  known[0] = of_q, known[1] = params;
  run.evidence.qparams = [](std::string_view name) -> const quant::QParams* {
    return name == "q" ? &known[0] : name == "k" ? &known[1] : nullptr;
  };
  run.evidence.channels = [o](std::string_view name) {
    ChannelStats stats;
    for (int c = 0; c < 4; ++c) {
      const float r = c != 2 ? 1.0f : name == "k" ? o.outlier : 1 / o.outlier;
      stats.ranges.emplace_back(-r, r);
    }
    return stats;
  };
  return BalanceKeys(g, run);
}

Tensor Values(float of_channel_2) {
  Tensor t = Tensor::Empty(DType::kF32, {1, 2, 5, 4});
  for (size_t i = 0; float& v : t.mutable_as<float>()) {
    v = std::sin(1.7f * static_cast<float>(i)) * (i % 4 == 2 ? of_channel_2 : 1.0f), ++i;
  }
  return t;
}

TEST(BalanceKeys, ScoresStayAndRangesMeet) {
  const Options o;
  const Graphs m = Attention(o);
  Graph after = m.g;
  PassRun run;
  const auto changed = Balance(after, run, o);
  ASSERT_TRUE(changed && *changed);
  ASSERT_EQ(run.own_params.size(), 2u);
  for (const auto& [name, params] : run.own_params) EXPECT_NEAR(params.scale, 2.0f / 255, 1e-4f) << name;
  const ir::TensorMap inputs{{"q", Values(0.02f)}, {"k", Values(50)}, {"v", Values(1)}};
  const auto want = ir::Interpret(m.g, inputs), got = ir::Interpret(after, inputs);
  ASSERT_TRUE(want && got);
  for (int64_t i = 0; i < (*want)[0].size(); ++i) EXPECT_NEAR((*want)[0].GetDouble(i), (*got)[0].GetDouble(i), 1e-5);
}

TEST(BalanceKeys, LeavesCachesOtherRanksOtherCodesAndWhatGainsLittle) {
  for (const Options& o : {Options{.read_twice = true}, Options{.k_rank = 3}, Options{.codes = DType::kE4M3FN},
                           Options{.outlier = 1.05f}}) {
    Graph g = Attention(o).g;
    PassRun run;
    const auto changed = Balance(g, run, o);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(*changed);
    EXPECT_TRUE(run.own_params.empty());
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
