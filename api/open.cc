#include "octavo/api/open.h"

#include <format>

#include "octavo/api/optimize.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

namespace {

// Products of codes that no op of octavo stands for.
std::string SlowNote(const ir::Graph& graph) {
  const int count = passes::vendor::CountLooseProducts(graph);
  if (count == 0) return {};
  return std::format(
      "quantized products that run one by one, exactly and slowly, since no rule fits them: {}; `octavo optimize FILE "
      "-o OUT` gives the reasons",
      count);
}

// In float one product for Q, K and V takes longer than three: its result leaves L2 and is copied apart again. MiniLM, 32 x 56
// tokens, 2 threads: 275 ms against 248 (Ice Lake).
passes::Pipeline FloatPipeline() {
  passes::Pipeline pipeline = *passes::PipelineOfRecipe("float");
  std::erase(pipeline.passes, "qkv_float");
  return pipeline;
}

}  // namespace

Opened FuseToRun(ir::Graph graph) {
  if (passes::PipelineOfGraph(graph)) return {std::move(graph), {}};
  OptimizeOptions options;
  options.recipe = "quantized";
  if (!passes::vendor::IsQuantized(graph)) options.pipeline = FloatPipeline();
  options.explain = false;
  auto optimized = Optimize(graph, options);
  if (!optimized) {
    return {std::move(graph), std::format("the model runs unfused and slowly: {}; `octavo explain FILE` "
                                          "shows what its nodes lack",
                                          optimized.error().message)};
  }
  std::string note = SlowNote(optimized->graph);
  return {std::move(optimized->graph), std::move(note)};
}

}  // namespace octavo::api
