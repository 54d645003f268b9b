// What a user wants in float stays float, whatever the recipe, and nothing else does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "octavo/api/optimize.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::api {
namespace {

using ::testing::HasSubstr;

ir::Graph Bert() {
  auto graph = ir::onnx::ReadFile(std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data/float/bert.ts17.sdpa.onnx");
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return std::move(*graph);
}

ir::Result<Optimized> OptimizeBert(OptimizeOptions options) {
  ir::Graph graph = Bert();
  auto data = quant::RandomData(2, quant::InputsOf(graph), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
  EXPECT_TRUE(data.has_value()) << data.error().message;
  options.data = data->get();
  options.threads = 1;
  return Optimize(std::move(graph), options);
}

OptimizeOptions Keeping(const std::string& recipe, std::vector<std::string> names) {
  OptimizeOptions options;
  options.recipe = recipe;
  options.keep_float = std::move(names);
  return options;
}

const passes::Candidate& Find(const Optimized& done, const std::string& kind, const std::string& name = "") {
  for (const passes::Candidate& c : done.report.candidates) {
    if (c.kind == kind && (name.empty() || c.nodes[0] == name)) return c;
  }
  ADD_FAILURE() << "no " << kind << " " << name;
  return done.report.candidates[0];
}

TEST(KeepFloat, ALinearOfEveryRecipe) {
  for (const char* recipe : {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"}) {
    SCOPED_TRACE(recipe);
    const auto all = OptimizeBert(Keeping(recipe, {}));
    ASSERT_TRUE(all.has_value()) << all.error().message;
    const std::string name = Find(*all, "linear").nodes[0];
    const auto done = OptimizeBert(Keeping(recipe, {name}));
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->report.linear.done, all->report.linear.done - 1);
    EXPECT_EQ(Find(*done, "linear", name).status, "left");
    EXPECT_EQ(Find(*done, "linear", name).reason, "stays float, as asked");
    EXPECT_EQ(done->report.attention.done, all->report.attention.done);
    EXPECT_GE(Worst(done->losses)->second.SqnrDb(), Worst(all->losses)->second.SqnrDb() - 1);
  }
}

TEST(KeepFloat, AnAttentionCore) {
  const auto count = [](const ir::Graph& g, ir::Op op) {
    return std::ranges::count_if(g.NodesInOrder(), [&](ir::NodeId id) { return g.node(id).op == op; });
  };
  const std::string name = Find(*OptimizeBert(Keeping("int8", {})), "attention").nodes[0];
  const auto done = OptimizeBert(Keeping("int8", {name}));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(count(done->graph, ir::Op::kSdpa), 1);
  EXPECT_EQ(count(done->graph, ir::Op::kQuantizedSdpa), 1);
  EXPECT_EQ(Find(*done, "attention", name).rule, "sdpa");
  EXPECT_EQ(Find(*done, "attention", name).reason, "stays float, as asked");
}

TEST(KeepFloat, PatternsAndReplay) {
  const auto done = OptimizeBert(Keeping("int8", {"*"}));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(done->report.linear.done, 0);
  EXPECT_GT(Worst(done->losses)->second.SqnrDb(), 90);
  const auto half = OptimizeBert(Keeping("int8", {"*layer.0*"}));
  ASSERT_TRUE(half.has_value()) << half.error().message;
  EXPECT_GT(half->report.linear.done, 0);
  EXPECT_LT(half->report.linear.done, half->report.linear.found);
  OptimizeOptions replay;
  replay.pipeline = *passes::PipelineOfGraph(half->graph);
  EXPECT_EQ(replay.pipeline->keep_float, std::vector<std::string>{"*layer.0*"});
  const auto again = OptimizeBert(replay);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(*ir::onnx::WriteBytes(again->graph), *ir::onnx::WriteBytes(half->graph));
}

TEST(KeepFloat, NamesThatFitNothingAreErrors) {
  for (const char* recipe : {"int8", "dynamic", "weights4"}) {
    const auto done = OptimizeBert(Keeping(recipe, {"*", "nobody"}));
    ASSERT_FALSE(done.has_value());
    EXPECT_THAT(done.error().message, HasSubstr("no Linear, attention core or table is called 'nobody'"));
    EXPECT_THAT(done.error().message, HasSubstr("such as '/"));
  }
  const auto done = OptimizeBert(Keeping("float", {"*"}));
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("keep_float is for what octavo quantizes"));
  EXPECT_THAT(passes::PipelineFromJson(R"({"octavo_pipeline": 1, "passes": [], "keep_float": "a"})").error().message,
              HasSubstr("must be a list of names"));
}

}  // namespace
}  // namespace octavo::api
