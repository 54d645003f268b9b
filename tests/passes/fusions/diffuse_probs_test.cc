// What rounding leaves of the codes of exponentials goes to later keys: what that keeps of a tail, and that the kernel means the body.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/runtime/model.h"
#include "octavo/tests/passes/coded_attention.h"

namespace octavo::passes::fusions {
namespace {

using namespace coded;  // NOLINT: the vocabulary of the test

// One op, as the pass leaves it.
Graph Diffused(const CodedForm& f, bool reduced) {
  Attention a(f);
  PassRun context;
  if (reduced) context.weight_limit = 64;
  EXPECT_TRUE(RelativeProbs(a.g, context).value_or(false));
  EXPECT_TRUE(ir::Inference::Run(a.g).has_value());
  EXPECT_TRUE(DiffuseProbs(a.g, context).value_or(false));
  EXPECT_FALSE(DiffuseProbs(a.g, context).value_or(true)) << "it rewrites what it has made";
  EXPECT_TRUE(FuseQuantized(a.g, context).has_value());
  EXPECT_TRUE(ir::Inference::Run(a.g).has_value());
  int ops = 0;
  for (NodeId id : a.g.NodesInOrder()) {
    const ir::Node& n = a.g.node(id);
    EXPECT_TRUE(n.op != Op::kExp && n.op != Op::kDiv) << "left beside the op";
    ops += n.op == Op::kQuantizedSdpa && n.attrs.Int("p_relative", 0) == ir::kSdpaDiffused;
  }
  EXPECT_EQ(ops, 1);
  return std::move(a.g);
}

TEST(DiffuseProbs, TheKernelMeansTheBody) {
  for (int bits = 0; bits < 8; ++bits) {
    const Graph g = Diffused({.guard = (bits & 1) != 0, .quantized_output = (bits & 2) != 0}, (bits & 4) != 0);
    const auto model = runtime::Model::Compile(g);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    for (int64_t keys : {1, 15, 16, 17, 40, 700}) {
      const TensorMap inputs = Inputs(keys, keys == 40);
      const auto got = model->Run(inputs);
      ASSERT_TRUE(got.has_value()) << got.error().message;
      EXPECT_TRUE(Interpreted(g, inputs)[0].SameBits((*got)[0])) << bits << " " << keys;
    }
    EXPECT_TRUE(std::ranges::any_of(model->KernelOfEachStep(),
                                    [](const std::string& k) { return k.starts_with("sdpa_int8"); }));
  }
}

// Scores of 7 more for the first key: each of the others is below half a code.
TEST(DiffuseProbs, KeepTheTailBehindOneKey) {
  Attention a({.quantized_output = false});
  TensorMap inputs = Inputs(1500, false);
  for (int64_t i = 0; i < 3; ++i) inputs["mask"].mutable_as<float>()[static_cast<size_t>(1500 * i)] = 8.0f;
  const auto exact = Interpreted(WithFloatProbs(a.g, a.codes), inputs);
  PassRun context;
  ASSERT_TRUE(RelativeProbs(a.g, context).value_or(false));
  EXPECT_GT(Off(Interpreted(a.g, inputs), exact), 0.2) << "nothing is lost: the test shows nothing";
  EXPECT_LT(Off(Interpreted(Diffused({.quantized_output = false}, false), inputs), exact), 0.06);
}

}  // namespace
}  // namespace octavo::passes::fusions
