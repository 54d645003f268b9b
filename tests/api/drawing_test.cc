// What the report draws of a graph.
#include "octavo/api/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace octavo::api {
namespace {

using ir::Graph;
using ir::Op;
using ir::ValueId;
using ::testing::ElementsAre;

ValueId Node(Graph& g, Op op, std::vector<ValueId> inputs, std::string name, std::vector<std::string> origin = {}) {
  const ir::NodeId id = g.AddNode(op, std::move(inputs), 1, {}, std::move(name));
  if (!origin.empty()) g.SetOrigin(id, std::move(origin));
  return g.node(id).output();
}

Graph Before() {
  Graph g;
  const ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim(2), ir::Dim(3)}});
  const ValueId w = g.AddConstant(ir::Tensor::F32({3, 3}, std::vector<float>(9, 1)), "w");
  const ValueId product = Node(g, Op::kMatMul, {x, w}, "a.0.fc");
  g.AddOutput("y", Node(g, Op::kAdd, {product, product}, "a.0.twice"));
  return g;
}

TEST(Drawing, HasNodesAndWhatEachReadsWithoutWeights) {
  const Drawing d = Draw(Before());
  EXPECT_EQ(d.count, 2u);
  ASSERT_EQ(d.nodes.size(), 4u);  // with the input and the output
  EXPECT_EQ(d.nodes[0].op, "input");
  EXPECT_EQ(d.nodes[0].type, "f32[2,3]");
  EXPECT_EQ(d.nodes[1].name, "a.0.fc");
  EXPECT_THAT(d.nodes[1].reads, ElementsAre(0));
  EXPECT_THAT(d.nodes[2].reads, ElementsAre(1));  // once, though it reads it twice
  EXPECT_THAT(d.nodes[3].reads, ElementsAre(2));
  EXPECT_EQ(d.nodes[3].name, "y");
}

TEST(Drawing, SaysWhichNodesOfTheFileANodeWasMadeOf) {
  Graph after;
  const ValueId x = after.AddInput("x", {ir::DType::kF32, {}});
  const ValueId codes = Node(after, Op::kQuantizeLinear, {x}, "q");
  after.AddOutput(
      "y", Node(after, Op::kQuantizedLinear, {codes}, "f", {"a.0.fc", "a.0.twice (2)", "pass:linear", "elsewhere"}));
  const auto json = nlohmann::json::parse(DrawingsJson(Draw(Before()), Draw(after)));
  const auto text = [&json](const nlohmann::json& at) { return json["texts"][at.get<size_t>()]; };
  const auto& fused = json["after"][2];
  EXPECT_EQ(text(fused[0]), "QuantizedLinear");
  EXPECT_EQ(fused[4], "quantized");
  EXPECT_EQ(fused[5], nlohmann::json({1, 2}));
  EXPECT_EQ(json["after"][1][4], "codes");
  EXPECT_EQ(json["before"][1][4], "float");
  EXPECT_EQ(json["before"][0][4], "end");
}

TEST(Drawing, AGraphThatNobodyCanLookAtIsNotDrawn) {
  Graph g;
  ValueId x = g.AddInput("x", {ir::DType::kF32, {}});
  for (size_t i = 0; i + 1 < Drawing::kMost; ++i) x = Node(g, Op::kRelu, {x}, "");
  g.AddOutput("y", x);
  const Drawing d = Draw(g);
  EXPECT_TRUE(d.nodes.empty());
  EXPECT_EQ(d.count, Drawing::kMost - 1);
}

}  // namespace
}  // namespace octavo::api
