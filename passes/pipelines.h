// Pipelines are data: a recipe's name, a JSON file, or the metadata of an optimized ONNX file.
#ifndef OCTAVO_PASSES_PIPELINES_H_
#define OCTAVO_PASSES_PIPELINES_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/passes/registry.h"

namespace octavo::passes {

// Names of passes in order. "calibrate" is no pass: it is the place where a caller gathers ranges, at most once.
struct Pipeline {
  std::vector<std::string> passes;
  std::vector<std::string> keep_float = {};  // PassRun::keep_float
  std::vector<std::string> dynamic = {};     // PassRun::dynamic
  // Of passes by name, where they are not the defaults.
  std::map<std::string, PassOptions, std::less<>> options = {};
  // Versions of the passes that are not octavo's own, by name.
  std::map<std::string, std::string, std::less<>> foreign = {};
  bool operator==(const Pipeline&) const = default;
};

struct Recipe {
  std::string_view name, what;
  std::vector<std::string> passes;
  std::map<std::string, PassOptions, std::less<>> options = {};  // of these passes, where they are not the defaults
};
// "float", "int8", "fp8" (E4M3FN), "quantized" for graphs that are quantized already, "dynamic" (int8
// without calibration), "weights4" and "weights8" for weights alone, "dynamic4" for both (weights of 4 bits).
const std::vector<Recipe>& Recipes();
// Passes whose option `bits` options of that name mean.
inline constexpr std::string_view kOfBits[] = {"dynamic4", "weights4"};
// With what was added to the registry for it.
Result<Pipeline> PipelineOfRecipe(std::string_view recipe, const Registry& registry = Registry::Own());
// Empty, or an error that names the pass that the registry lacks or has in another version, or an option that a pass does not have.
Status CheckPasses(const Pipeline& pipeline, const Registry& registry);
// The options of a pass, complete; given is what the pipeline says.
Result<PassOptions> OptionsOf(const PassInfo& pass, const Pipeline& pipeline);
// "block=64" for the pass "weights4", the value read as the type that the option has.
Status SetOption(const Registry& registry, std::string_view pass, std::string_view name_and_value, Pipeline& pipeline);
// A pass that stands before or behind the first of `places`, and what to say where a pipeline has none of them.
struct AddedPass {
  std::string_view pass = {};
  std::vector<std::string_view> places = {};
  bool behind = false;
  std::string_view refusal = {};
};
Result<Pipeline> WithPass(Pipeline pipeline, const AddedPass& added);
// Adds names to keep_float; an error where there are some and no pass quantizes.
Result<Pipeline> WithFloat(Pipeline pipeline, const std::vector<std::string>& keep_float);
// Adds names to dynamic, with the pass of that name behind `quantize`; an error where there are some and that is not there.
Result<Pipeline> WithDynamic(Pipeline pipeline, const std::vector<std::string>& linears);
// {"octavo_pipeline": 1, "passes": ["canonical", ...], "keep_float": [...], "dynamic": [...], "options": {"weights4": {"block": 64}},
// "foreign": {"quick_gelu": "1.0"}}, all but the first two where there are some. A pass that is neither octavo's own nor named under "foreign" is an error.
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
  const Registry* registry = nullptr;  // null: octavo's own passes
  // Before each pass. An error of it ends the run.
  std::function<Status(const Pass& pass)> before = {};
  // After every pass that changed the graph, before the next; for --print-after.
  std::function<void(std::string_view pass, const Graph& graph)> after = {};
  std::vector<PassTiming>* timings = nullptr;
  const Pipeline* pipeline = nullptr;  // whose options passes get; null: the defaults
};

// Runs `passes`, names of the registry, in order, with the pipeline's options where one is given. One that goes wrong is undone, with a note (guard.h): the errors are those of the graph as it
// comes, and of the caller's data, which begin with "in pass X".
Status RunPasses(const std::vector<std::string>& passes, Graph& graph, PassRun& run,
                 const ManagerOptions& options = {});

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_PIPELINES_H_
