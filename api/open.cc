#include "octavo/api/open.h"

#include <algorithm>
#include <filesystem>
#include <format>

#include "octavo/api/optimize.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/log.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

namespace {

// Products of codes that no op of octavo stands for.
std::string SlowNote(const ir::Graph& graph) {
  const int count = passes::vendor::CountLooseProducts(graph);
  if (count == 0) return {};
  return std::format(
      "quantized products that run one by one, exactly and slowly, since no rule fits them: {}; octavo.optimize(model) "
      "gives the reasons",
      count);
}

// In float one product for Q, K and V takes longer than three: its result leaves L2 and is copied apart again. MiniLM, 32 x 56
// tokens, 2 threads: 275 ms against 248 (Ice Lake).
passes::Pipeline FloatPipeline() {
  passes::Pipeline pipeline = *passes::PipelineOfRecipe("float");
  std::erase(pipeline.passes, "qkv_float");
  pipeline.passes.insert(pipeline.passes.begin(), "to_f32");  // x86 has no products of 16 bits
  return pipeline;
}

// A file of recipe float keeps its products in 16 bits, for which x86 has no instructions.
bool IsFloatIn16Bits(const ir::Graph& graph) {
  const auto pipeline = passes::PipelineOfGraph(graph), of_floats = passes::PipelineOfRecipe("float");
  if (!pipeline || !of_floats || pipeline->passes != of_floats->passes) return false;
  return std::ranges::any_of(graph.NodesInOrder(), [&](ir::NodeId id) {
    const ir::DType type = graph.value(graph.node(id).output()).type.dtype;
    return graph.node(id).op == ir::Op::kMatMul && (type == ir::DType::kF16 || type == ir::DType::kBF16);
  });
}

ir::Result<Opened> Widen(const ir::Graph& graph) {
  OptimizeOptions options;
  passes::Pipeline pipeline;
  pipeline.passes = {"to_f32", "canonical"};
  options.pipeline = std::move(pipeline);
  options.explain = false;
  OCTAVO_TRY(Optimized optimized, Optimize(graph, options));
  return Opened{std::move(optimized.graph), {}};
}

ir::Result<Opened> Fuse(const ir::Graph& graph) {
  OptimizeOptions options;
  options.recipe = "quantized";
  if (!passes::vendor::IsQuantized(graph)) options.pipeline = FloatPipeline();
  options.explain = false;
  OCTAVO_TRY(Optimized optimized, Optimize(graph, options));
  std::string note = SlowNote(optimized.graph);
  return Opened{std::move(optimized.graph), std::move(note)};
}

// A file that octavo wrote is what its pipeline made of it, whether that can be read or not.
std::string NoteOfPipeline(const ir::Graph& graph) {
  const auto known = passes::PipelineOfGraph(graph);
  return known ? ""
               : std::format("the file says that octavo made it, but not how, so it runs as it stands: {}",
                             known.error().message);
}

Opened Fused(ir::Graph graph) {
  if (passes::CarriesPipeline(graph)) {
    if (IsFloatIn16Bits(graph)) {
      if (auto wide = ir::Closed("widening the model", [&] { return Widen(graph); })) return std::move(*wide);
    }
    std::string note = NoteOfPipeline(graph);
    return {std::move(graph), std::move(note)};
  }
  auto fused = ir::Closed("fusing the model", [&] { return Fuse(graph); });
  if (fused) return std::move(*fused);
  return {std::move(graph), std::format("the model runs unfused and slowly: {}; octavo.explain(model) "
                                        "shows what its nodes lack",
                                        fused.error().message)};
}

}  // namespace

Opened FuseToRun(ir::Graph graph) {
  Opened opened = Fused(std::move(graph));
  if (!opened.note.empty()) ir::Log(ir::LogLevel::kWarning, "{}", opened.note);
  return opened;
}

std::string PackedBeside(const std::string& model) {
  return std::filesystem::path(model).replace_extension("octavo-packed").string();
}

}  // namespace octavo::api
