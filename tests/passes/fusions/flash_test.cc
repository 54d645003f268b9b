// Which attentions the pass `flash` marks.
#include <gtest/gtest.h>

#include <string>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

NodeId Attend(Graph& g, const std::string& name, DType type) {
  const auto input = [&](const char* what) { return g.AddInput(name + what, {type, ir::SymShape{1, 2, 8, 4}}); };
  std::vector<ValueId> in = {input("q"), input("k"), input("v")};
  for (int i = 0; i < 4 && type != DType::kF32; ++i) {
    in.push_back(g.AddConstant(Tensor::ScalarF32(0.5f)));
    in.push_back(g.AddConstant(Tensor::Zeros(type, {})));
  }
  const NodeId o = g.AddNode(
      type == DType::kF32 ? Op::kSdpa : Op::kQuantizedSdpa, std::move(in), 1,
      {{"num_heads", int64_t{2}}, {"kv_num_heads", int64_t{2}}, {"head_dim", int64_t{4}}, {"v_head_dim", int64_t{4}}});
  g.AddOutput(name, g.node(o).output());
  return o;
}

TEST(Flash, MarksFloatAndIntegersAndLeavesFp8) {
  Graph g;
  const NodeId real = Attend(g, "real", DType::kF32), int8 = Attend(g, "int8", DType::kS8),
               fp8 = Attend(g, "fp8", DType::kE4M3FN);
  PassRun context;
  EXPECT_TRUE(UseFlash(g, context).value_or(false));
  EXPECT_EQ(g.node(real).attrs.Int("flash", 0), 1);
  EXPECT_EQ(g.node(int8).attrs.Int("flash", 0), 1);
  EXPECT_EQ(g.node(fp8).attrs.Int("flash", 0), 0);
  EXPECT_EQ(g.node(int8).inputs.size(), 11u);  // the numbers of P stay
  ASSERT_EQ(context.log.size(), 2u);
  EXPECT_NE(context.log[0].find("1 float and 1 int8"), std::string::npos) << context.log[0];
  EXPECT_NE(context.log[1].find("1 fp8"), std::string::npos) << context.log[1];
  EXPECT_FALSE(UseFlash(g, context).value_or(true));
}

TEST(Flash, LeavesQuantizedScores) {
  Graph g;
  const NodeId id = Attend(g, "coded", DType::kU8);
  std::vector<ValueId> in = g.node(id).inputs;
  in.resize(16);
  in.push_back(in[3]), in.push_back(in[4]);
  const NodeId coded = g.AddNode(Op::kQuantizedSdpa, std::move(in), 1, g.node(id).attrs);
  g.AddOutput("y", g.node(coded).output());
  PassRun context;
  EXPECT_TRUE(UseFlash(g, context).value_or(false));
  EXPECT_EQ(g.node(id).attrs.Int("flash", 0), 1);
  EXPECT_EQ(g.node(coded).attrs.Int("flash", 0), 0);
  ASSERT_EQ(context.log.size(), 2u);
  EXPECT_NE(context.log[1].find("1 attentions whose scores are quantized or divided stay exact"), std::string::npos)
      << context.log[1];
}

}  // namespace
}  // namespace octavo::passes::fusions
