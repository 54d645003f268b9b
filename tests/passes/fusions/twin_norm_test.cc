// twin_norm.cc: a norm and the codes of another of the same sum become one op, with the same bits; what is not the same norm stays.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"
#include "octavo/tests/passes/same_bits.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;

// A norm by `op`, with attributes, beside the codes of one of the same rows.
struct Pair : Graphs {
  Pair(Op op, ir::Attrs of_twin, ir::Attrs of_codes, size_t outputs = 1) : Graphs(3, 23) {
    const ValueId x = Input("x", {2, 3, 8}), skip = op == Op::kSkipLayerNorm ? Input("skip", {2, 3, 8}) : ValueId{};
    const bool rms = of_codes.Int("rms", 0) != 0;
    const ValueId beta = rms ? ValueId{} : Reals({8});
    std::vector<ValueId> in{x};
    if (skip) in.push_back(skip);
    in.push_back(Reals({8}));
    if (!rms) in.push_back(Reals({8}));
    const NodeId twin = g.AddNode(op, std::move(in), outputs, std::move(of_twin), "twin");
    for (size_t i = 0; i < outputs; ++i) g.AddOutput("y" + std::to_string(i), g.node(twin).output(i));
    const NodeId codes = g.AddNode(Op::kNormQuant, {x, skip, Reals({8}), beta, Real(0.02f), Zero(DType::kU8, 128)}, 2,
                                   std::move(of_codes), "codes");
    g.DropOutput(codes, 0);
    g.AddOutput("q", g.node(codes).output(1));
    EXPECT_TRUE(ir::Inference::Run(g).has_value());
  }
};
const ir::Attrs kRms{{"rms", int64_t{1}}};

TEST(TwinNormRule, FiresForEachNormWithTheSameBits) {
  const ir::TensorMap inputs{{"x", Random({2, 3, 8}, 1)}, {"skip", Random({2, 3, 8}, 2)}};
  for (const auto& [op, of_twin, of_codes, outputs] :
       {std::tuple{Op::kLayerNormalization, ir::Attrs(), ir::Attrs(), 1u},
        {Op::kRMSNormalization, ir::Attrs(), kRms, 1u},
        {Op::kSkipLayerNorm, ir::Attrs(), ir::Attrs(), 1u},
        {Op::kSkipLayerNorm, kRms, kRms, 2u}}) {
    const Pair before(op, of_twin, of_codes, outputs);
    Graph after = before.g;
    PassRun run;
    EXPECT_TRUE(FuseQuantized(after, run).value_or(false)) << ir::InfoOf(op).name;
    EXPECT_EQ(CountOf(after, Op::kNormQuant), 1);
    EXPECT_EQ(CountOf(after, op), 0);
    ir::TensorMap given{{"x", inputs.at("x")}};
    if (op == Op::kSkipLayerNorm) given["skip"] = inputs.at("skip");
    passes::ExpectSameBits(before.g, after, given);
  }
}

TEST(TwinNormRule, TwinsHaveOneEpsilon) {
  const auto twins = [](float epsilon) {
    return [epsilon](Graphs& m) {
      const ValueId x = m.Input("x", {2, 3, 8}), skip = m.Input("skip", {2, 3, 8});
      m.g.AddOutput("y", m.Node(Op::kSkipLayerNorm, {x, skip, m.Reals({8}), m.Reals({8})}, {{"epsilon", epsilon}}));
      const NodeId coded =
          m.g.AddNode(Op::kNormQuant, {x, skip, m.Reals({8}), m.Reals({8}), m.Real(0.1f), m.Zero(DType::kU8, 9)}, 2,
                      {{"epsilon", 1e-5f}}, "coded");
      m.g.DropOutput(coded, 0);
      m.g.AddOutput("q", m.g.node(coded).output(1));
    };
  };
  EXPECT_EQ(CountAfter(FuseQuantized, Op::kSkipLayerNorm, twins(1e-5f)), 0);
  EXPECT_EQ(CountAfter(FuseQuantized, Op::kSkipLayerNorm, twins(1e-6f)), 1);
}

TEST(TwinNormRule, RefusesWithASentence) {
  const auto reason = [](const Pair& pair, Op op) {
    Graph g = pair.g;
    PassRun run;
    std::vector<NearMiss> misses;
    run.misses = &misses;
    EXPECT_FALSE(pattern::ApplyRules({TwinNorm(op)}, g, run).value_or(true));
    return DeepestReason(misses);
  };
  EXPECT_EQ(reason(Pair(Op::kSkipLayerNorm, {{"epsilon", 1e-6f}}, {}), Op::kSkipLayerNorm),
            "Illegal: the two norms have different epsilons");
  EXPECT_EQ(reason(Pair(Op::kSkipLayerNorm, {}, kRms), Op::kSkipLayerNorm),
            "Illegal: one of the norms takes the mean away, the other does not");
  EXPECT_EQ(reason(Pair(Op::kLayerNormalization, {}, {}, 2), Op::kLayerNormalization),
            "NotWorth: the mean or deviation of the twin is used");
  Pair twice(Op::kSkipLayerNorm, {}, {});
  PassRun run;
  EXPECT_TRUE(FuseQuantized(twice.g, run).value_or(false));
  const Node made = *twice.g.Producer(twice.g.outputs()[1].value);
  twice.g.AddOutput("again",
                    twice.Node(Op::kSkipLayerNorm, {made.input(0), made.input(1), made.input(2), made.input(3)}));
  EXPECT_EQ(reason(twice, Op::kSkipLayerNorm), "Shape: the codes have a twin already");
}

}  // namespace
}  // namespace octavo::passes::fusions
