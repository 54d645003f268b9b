// Pipelines are data: a recipe's name, a JSON file, or the metadata of an optimized ONNX file.
#ifndef OCTAVO_PASSES_PIPELINES_H_
#define OCTAVO_PASSES_PIPELINES_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes {

// Names of passes in order. "calibrate" is no pass: it is the place where a caller gathers ranges, at most once.
struct Pipeline {
  std::vector<std::string> passes;
  std::vector<std::string> keep_float = {};  // PassContext::keep_float
  std::vector<std::string> dynamic = {};     // PassContext::dynamic
  bool operator==(const Pipeline&) const = default;
};

// "float", "int8", "fp8" (E4M3FN), "quantized" for graphs that are quantized already, "dynamic" (int8
// without calibration), "weights4" and "weights8" for weights alone, "dynamic4" for both (weights of 4 bits).
Result<Pipeline> PipelineOfRecipe(std::string_view recipe);
// Puts reduce_range before the passes that choose or make int8 weights; an error where there are none.
Result<Pipeline> WithReducedRange(Pipeline pipeline);
// Adds names to keep_float; an error where there are some and no pass quantizes.
Result<Pipeline> WithFloat(Pipeline pipeline, const std::vector<std::string>& keep_float);
// Adds names to dynamic, with the pass of that name behind `quantize`; an error where there are some and that is not there.
Result<Pipeline> WithDynamic(Pipeline pipeline, const std::vector<std::string>& linears);
// Puts quantize_caches behind the pass that quantizes attention; an error where there is none.
Result<Pipeline> WithQuantizedCaches(Pipeline pipeline);
// {"octavo_pipeline": 1, "passes": [...], "keep_float": [...], "dynamic": [...]}, the last two where there are some; unknown passes and other versions are errors that name them.
Result<Pipeline> PipelineFromJson(std::string_view json);
std::string PipelineToJson(const Pipeline& pipeline);
// Whether the graph's metadata says that octavo made it, readable or not.
bool CarriesPipeline(const Graph& graph);
// The pipeline that made this graph, from its metadata; an error if it carries none.
Result<Pipeline> PipelineOfGraph(const Graph& graph);
// Writes pipeline and version into the graph's metadata.
void RecordPipeline(const Pipeline& pipeline, Graph& graph);
extern const char* const kCalibrate;

struct PassTiming {
  std::string pass;
  bool changed = false;
  double milliseconds = 0;
};

struct ManagerOptions {
  // After every pass that changed the graph, before the next; for --print-after.
  std::function<void(std::string_view pass, const Graph& graph)> after;
  std::vector<PassTiming>* timings = nullptr;
};

// Runs `passes` in order. One that goes wrong is undone, with a note (guard.h): the errors are those of the graph as it comes, and of
// the caller's data, which begin with "in pass X".
Status RunPasses(const std::vector<std::string>& passes, Graph& graph, PassContext& context,
                 const ManagerOptions& options = {});

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_PIPELINES_H_
