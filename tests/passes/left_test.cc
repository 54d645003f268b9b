// What the passes of quantization leave as it is, and the sentences by which they say so.
#include <gtest/gtest.h>

#include "octavo/passes/quantize/caches.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::SymShape;
using ir::Tensor;

// A cache of keys that grows by what comes, and what reads it.
struct Growing : Maker {
  Growing() : Maker(5) {
    past = g.AddInput("past", {DType::kF32, SymShape{1, 2, ir::Dim::Symbol("p"), 4}});
    const ValueId now = g.AddInput("now", {DType::kF32, SymShape{1, 2, 1, 4}});
    all = Node(Op::kConcat, {past, now}, {{"axis", int64_t{2}}});
    g.AddOutput("present", all);
  }
  std::string Reason() {
    EXPECT_TRUE(ir::Inference::Run(g));
    PassRun context;
    EXPECT_TRUE(QuantizeCaches(g, context));
    return context.candidates.empty() ? "" : context.candidates[0].reason;
  }
  ValueId past, all;
};

TEST(Left, Caches) {
  Growing leaves;
  leaves.g.AddOutput("again", leaves.past);
  EXPECT_EQ(leaves.Reason(), "'present' stays float: the past itself leaves the graph as floats");
  Growing read;
  read.g.AddOutput("y", read.Node(Op::kRelu, {read.past}));
  EXPECT_NE(read.Reason().find("reads the past as floats"), std::string::npos);
  Growing whole;
  whole.g.AddOutput("y", whole.Node(Op::kRelu, {whole.all}));
  EXPECT_NE(whole.Reason().find("reads it as floats; caches become codes where attention that reads them is quantized"),
            std::string::npos);
  Growing channels;
  const ValueId scales = channels.g.AddConstant(Tensor::F32({2}, {0.1f, 0.2f}));
  const ValueId zeros = channels.g.AddConstant(Tensor::Zeros(DType::kU8, {2}));
  channels.g.AddOutput("y", channels.Node(Op::kQuantizeLinear, {channels.all, scales, zeros}));
  EXPECT_NE(channels.Reason().find("quantizes it by something else than one constant scale and zero point"),
            std::string::npos);
  Growing two;
  two.g.AddOutput("y", two.Quantize(two.all, 0.1f, 128));
  two.g.AddOutput("z", two.Quantize(two.all, 0.2f, 128));
  EXPECT_NE(two.Reason().find("quantize it by different scales"), std::string::npos);
  EXPECT_EQ(Growing().Reason(),
            "'present' stays float: nothing quantizes it, because the attention that reads it stayed in float");
}

Graph Product(int64_t k, const char* name) {
  Maker m(6);
  const ValueId x = m.g.AddInput("x", {DType::kF32, SymShape{2, k}});
  const ValueId y = m.Node(Op::kMatMul, {x, m.g.AddConstant(Tensor::Zeros(DType::kF32, {k, 8}))});
  m.g.SetNodeName(m.g.value(y).producer, name);
  m.g.AddOutput("y", y);
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return std::move(m.g);
}

// Why a pass left the node of that name.
std::string LeftOf(const PassRun& run, std::string_view node) {
  for (const Decision& d : run.decisions) {
    if (d.node == node && d.fate == Decision::Fate::kLeft) return d.reason;
  }
  return "";
}

TEST(Left, Linears) {
  Graph g = Product(8, "fc");
  PassRun context;
  EXPECT_TRUE(Quantize(g, context));
  EXPECT_EQ(LeftOf(context, "fc"), "quantize: fc stays float: no range for 'x'");
  PassRun blocks;
  EXPECT_TRUE(Weights4(g, blocks));
  EXPECT_EQ(LeftOf(blocks, "fc"), "weights: fc stays float: its k is 8, less than a block of 16");
}

TEST(Left, ModelsInSixteenBits) {
  Graph branch;
  branch.AddOutput("b", branch.AddInput("c", {DType::kF16, SymShape{2}}));
  const auto body = std::make_shared<const Graph>(branch);
  Maker m(7);
  const ValueId x = m.g.AddInput("x", {DType::kF16, SymShape{2}}), c = m.g.AddInput("c", {DType::kBool, SymShape{}});
  const NodeId choice = m.g.AddNode(
      Op::kIf, {c, x}, 1, {{"octavo_captures", int64_t{1}}, {"then_branch", body}, {"else_branch", body}}, "choice");
  m.g.AddOutput("y", m.g.node(choice).output());
  ASSERT_TRUE(ir::Inference::Run(m.g));
  PassRun context;
  EXPECT_TRUE(ToF32(m.g, context));
  ASSERT_EQ(context.log.size(), 1u);
  EXPECT_NE(context.log[0].find("'choice' has a subgraph"), std::string::npos) << context.log[0];
}

}  // namespace
}  // namespace octavo::passes::quantize
