// Optimize as users see it: deterministic bytes, refusals that speak, reports that are true.
#include "octavo/api/optimize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::api {
namespace {

using ir::Graph;

Graph Bert() {
  const std::filesystem::path dir = std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data/float";
  auto graph = ir::onnx::ReadFile(dir / "bert.ts17.sdpa.onnx");
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return std::move(*graph);
}

ir::Result<Optimized> OptimizeBert(int threads, const std::string& recipe = "int8") {
  Graph graph = Bert();
  auto data = quant::RandomData(3, quant::InputsOf(graph), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
  EXPECT_TRUE(data.has_value()) << data.error().message;
  OptimizeOptions options;
  options.recipe = recipe;
  options.data = data->get();
  options.threads = threads;
  return Optimize(std::move(graph), options);
}

TEST(Optimize, SameBytesForAnyThreadCountAndEveryRun) {
  auto a = OptimizeBert(1);
  auto b = OptimizeBert(2);
  ASSERT_TRUE(a.has_value() && b.has_value());
  const auto first = ir::onnx::WriteBytes(a->graph);
  const auto second = ir::onnx::WriteBytes(b->graph);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_GT(first->size(), 1000u);
  EXPECT_EQ(*first, *second);
}

TEST(Optimize, FileReadsBackAsTheSameFusedGraph) {
  auto a = OptimizeBert(1);
  ASSERT_TRUE(a.has_value());
  const auto bytes = ir::onnx::WriteBytes(a->graph);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
  auto back = ir::onnx::ReadBytes(*bytes);
  ASSERT_TRUE(back.has_value()) << back.error().message;
  int qkv = 0;
  int sdpa = 0;
  for (ir::NodeId id : back->NodesInOrder()) {
    qkv += back->node(id).op == ir::Op::kQuantizedQkv;
    sdpa += back->node(id).op == ir::Op::kQuantizedSdpa;
  }
  EXPECT_EQ(qkv, 2);
  EXPECT_EQ(sdpa, 2);
  EXPECT_TRUE(ir::VerifyStatus(*back).has_value());
  auto pipeline = passes::PipelineOfGraph(*back);
  ASSERT_TRUE(pipeline.has_value()) << pipeline.error().message;
  EXPECT_EQ(*pipeline, a->pipeline);
}

TEST(Optimize, Int8WithoutDataSaysWhatIsMissing) {
  auto result = Optimize(Bert(), {});
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("needs calibration data"), std::string::npos) << result.error().message;
}

TEST(Optimize, UnknownRecipeIsNamed) {
  OptimizeOptions options;
  options.recipe = "int3";
  auto result = Optimize(Bert(), options);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("'int3'"), std::string::npos);
}

// 7 bits: every panel is certified for vpmaddubsw, some weight stands at the limit, the pipeline says so, and a file replays it.
TEST(Optimize, ReducedRangeCertifiesEveryPanel) {
  for (const std::string recipe : {"int8", "dynamic"}) {
    auto data = quant::RandomData(2, quant::InputsOf(Bert()), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
    ASSERT_TRUE(data.has_value());
    OptimizeOptions options;
    options.recipe = recipe, options.reduce_range = true, options.data = data->get();
    auto result = Optimize(Bert(), options);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(std::ranges::count(result->pipeline.passes, "reduce_range"), 1);
    int matrices = 0, largest = 0;
    for (const ir::NodeId id : result->graph.NodesInOrder()) {
      const ir::Node& n = result->graph.node(id);
      if (n.op != ir::Op::kQuantizedLinear && n.op != ir::Op::kQuantizedQkv) continue;
      for (const ir::ValueId v : n.inputs) {
        const ir::Tensor* w = v.valid() ? result->graph.ConstantOf(v) : nullptr;
        if (w == nullptr || w->dtype() != ir::DType::kS8 || w->rank() != 2) continue;
        const auto codes = w->as<int8_t>();
        for (const int8_t code : codes) largest = std::max(largest, std::abs(code));
        const auto packed = kernels::PackWeights({.data = codes.data(), .k = w->shape()[0], .n = w->shape()[1]});
        ASSERT_TRUE(packed.has_value());
        for (int64_t p = 0; p < packed->n_padded() / 16; ++p) EXPECT_GE(packed->SafeQuads(p), 1);
        ++matrices;
      }
    }
    EXPECT_GE(matrices, 8) << recipe;
    EXPECT_EQ(largest, 64) << recipe;
  }
}

TEST(Optimize, ReducedRangeWhereThereIsNoneIsRefused) {
  OptimizeOptions options;
  options.reduce_range = true;
  for (const char* recipe : {"float", "fp8"}) {
    options.recipe = recipe;
    auto result = Optimize(Bert(), options);
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find("recipes int8 and dynamic"), std::string::npos) << result.error().message;
  }
}

TEST(Optimize, FloatRecipeFusesAndReportsLinearsAsLeft) {
  auto result = OptimizeBert(1, "float");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->report.attention.done, 2);
  EXPECT_EQ(result->report.qkv.done, 2);
  EXPECT_EQ(result->report.linear.done, 0);
  for (const passes::Candidate& c : result->report.candidates) {
    if (c.kind == "linear") {
      EXPECT_EQ(c.status, "left");
      EXPECT_FALSE(c.reason.empty());
    }
  }
}

TEST(Optimize, ReportsNameEveryCandidate) {
  auto result = OptimizeBert(1);
  ASSERT_TRUE(result.has_value());
  const std::string json = ReportJson(*result, {1000, 300});
  const std::string html = ReportHtml(*result, {1000, 300}, "a <b> & \"c\"");
  for (const passes::Candidate& c : result->report.candidates) {
    ASSERT_FALSE(c.nodes.empty());
    EXPECT_NE(json.find(c.nodes[0]), std::string::npos);
    EXPECT_NE(html.find(c.nodes[0]), std::string::npos);
  }
  EXPECT_EQ(html.find("<b> &"), std::string::npos);  // the name is escaped
  EXPECT_NE(json.find("\"schema\": 1"), std::string::npos);
}

// K and V are one tensor: quantized once, and both readers have its scale.
TEST(Optimize, AnOperandThatTwoReadersShareKeepsItsScale) {
  std::mt19937_64 rng(5);
  const auto random = [&rng](ir::Shape shape, float size) {
    ir::Tensor t = ir::Tensor::Empty(ir::DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = std::normal_distribution<float>(0.0f, size)(rng);
    return t;
  };
  Graph g;
  g.info.opsets[""] = 18;
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{1, ir::Dim::Symbol("s"), 32}});
  const auto linear = [&](const char* name) {
    return g.node(g.AddNode(ir::Op::kMatMul, {x, g.AddConstant(random({32, 32}, 0.05f))}, 1, {}, name)).output();
  };
  const ir::ValueId q = linear("q"), shared = linear("kv");
  constexpr int64_t kHeads = 2, kDim = 16, kRank = 3;
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kSdpa, {q, shared, shared}, 1,
                                    {{"num_heads", kHeads},
                                     {"kv_num_heads", kHeads},
                                     {"head_dim", kDim},
                                     {"v_head_dim", kDim},
                                     {"q_rank", kRank},
                                     {"k_rank", kRank},
                                     {"v_rank", kRank},
                                     {"out_rank", kRank},
                                     {"scale", 0.25f}},
                                    "attention"))
                       .output());
  const ir::TensorMap inputs{{"x", random({1, 20, 32}, 1.0f)}};
  auto want = ir::Interpret(g, inputs);
  ASSERT_TRUE(want.has_value());
  for (const char* recipe : {"int8", "fp8"}) {
    auto data = quant::InMemoryData({inputs}, quant::InputsOf(g));
    OptimizeOptions options;
    options.recipe = recipe;
    options.data = data.get();
    auto optimized = Optimize(g, options);
    ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
    EXPECT_EQ(optimized->report.attention.done, 1);
    auto got = ir::Interpret(optimized->graph, inputs);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    double error = 0, size = 0;
    for (int64_t i = 0; i < (*want)[0].size(); ++i) {
      error += std::pow((*got)[0].GetDouble(i) - (*want)[0].GetDouble(i), 2);
      size += std::pow((*want)[0].GetDouble(i), 2);
    }
    EXPECT_GT(size, 0.1);
    EXPECT_LT(std::sqrt(error / size), 0.08) << recipe;  // 8 bits; a scale of 1 for values of 0.3 leaves nothing
  }
}

TEST(Pipeline, JsonRoundTripAndRefusals) {
  auto recipe = passes::PipelineOfRecipe("int8");
  ASSERT_TRUE(recipe.has_value());
  auto back = passes::PipelineFromJson(passes::PipelineToJson(*recipe));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*recipe, *back);
  auto unknown = passes::PipelineFromJson(R"({"octavo_pipeline": 1, "passes": ["no_such"]})");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("'no_such'"), std::string::npos);
  EXPECT_FALSE(passes::PipelineFromJson("[]").has_value());
  EXPECT_FALSE(passes::PipelineFromJson(R"({"octavo_pipeline": 2, "passes": []})").has_value());
}

}  // namespace
}  // namespace octavo::api
