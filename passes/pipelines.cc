#include "octavo/passes/pipelines.h"

#include <algorithm>
#include <chrono>

#include "octavo/ir/closed.h"
#include "octavo/passes/guard.h"
#include "octavo/version.h"

namespace octavo::passes {

const char* const kCalibrate = "calibrate";

namespace {

constexpr const char* kPipelineKey = "octavo.pipeline";
constexpr const char* kVersionKey = "octavo.version";

}  // namespace

const std::vector<Recipe>& Recipes() {
  static const auto* const recipes = new std::vector<Recipe>{
      {"float", "fusions only", {"canonical", "fuse_float", "fuse_weights", "qkv_float", "windows", "canonical"}},
      {"int8",
       "static int8 with fused attention; needs calibration data",
       {"to_f32",      "canonical",    "gated",          "fuse_float",    "conv_linears",   "canonical",     kCalibrate,
        "center_keys", "balance_keys", "choose_rows",    "smooth",        "fit_weights",    "quantize",      "dynamic",
        "cse",         "qdq",          "relative_probs", "diffuse_probs", "fuse_quantized", "quantized_qkv", "windows",
        "cse",         "dce"}},
      // No smoothing: fp8 keeps its relative precision over 15 binary orders, whatever the channels' sizes.
      {"fp8",
       "the same in E4M3FN; needs calibration data",
       {"to_f32", "canonical", "gated", "fuse_float", "canonical", kCalibrate, "fit_weights", "quantize_fp8", "cse",
        "qdq", "fuse_quantized", "quantized_qkv", "windows", "cse", "dce"}},
      {"dynamic",
       "int8 products whose activations are quantized at run time; no data needed, weights are fitted to it where "
       "given",
       {"to_f32", "canonical", "gated", "fuse_float", "rotate_stream", "conv_linears", "canonical", "fit_weights",
        "dynamic", "quantize_tables", "quantized_qkv", "windows", "cse", "dce"},
       {{"conv_linears", {{"separable", false}}}, {"rotate_stream", {{"worth", int64_t{0}}}}}},
      {"dynamic4",
       "the same with weights of 4 bits: the fastest for one token at a time",
       {"to_f32", "canonical", "gated", "fuse_float", "canonical", "dynamic4", "quantize_tables", "fuse_weights",
        "dynamic_blocks", "windows", "cse", "dce"}},
      {"weights4",
       "weights alone to 4 bits in blocks, activations float",
       {"to_f32", "canonical", "gated", "fuse_float", "canonical", "weights4", "quantize_tables", "fuse_weights",
        "windows", "cse", "dce"}},
      {"weights8",
       "weights alone to 8 bits in blocks, activations float",
       {"to_f32", "canonical", "gated", "fuse_float", "canonical", "weights8", "quantize_tables", "fuse_weights",
        "windows", "cse", "dce"}},
      // No scale is chosen, none is changed.
      {"quantized",
       "fuses a graph that is quantized already (int8 of such a graph means this)",
       {"canonical", "integer_form", "fuse_around", "conv_linears", "canonical", "fuse_quantized", "quantized_qkv",
        "tables", "fuse_weights", "why_not_int8", "fuse_left", "windows", "cse", "dce"}},
  };
  return *recipes;
}

Result<Pipeline> PipelineOfRecipe(std::string_view name, const Registry& registry) {
  const auto& recipes = Recipes();
  const auto recipe = std::ranges::find(recipes, name, &Recipe::name);
  if (recipe == recipes.end())
    return ir::Fail("there is no recipe '{}': use float, int8, fp8, dynamic, dynamic4, quantized, weights4 or weights8",
                    name);
  Pipeline pipeline{registry.Placed(recipe->passes)};
  pipeline.options = recipe->options;
  for (const std::string& pass : pipeline.passes) {
    const Pass* p = registry.Find(pass);
    if (p != nullptr && !p->own()) pipeline.foreign[pass] = p->info().version;
  }
  return pipeline;
}

Result<Pipeline> WithPass(Pipeline pipeline, const AddedPass& added) {
  const auto it = std::ranges::find_first_of(pipeline.passes, added.places);
  if (it == pipeline.passes.end()) return ir::Fail("{}", added.refusal);
  pipeline.passes.insert(it + (added.behind ? 1 : 0), std::string(added.pass));
  return pipeline;
}

Result<Pipeline> WithFloat(Pipeline pipeline, const std::vector<std::string>& keep_float) {
  const auto quantizes = [](const std::string& name) {
    const Pass* pass = Registry::Own().Find(name);
    return pass != nullptr && Quantizes(pass->info());
  };
  if (!keep_float.empty() && std::ranges::none_of(pipeline.passes, quantizes))
    return ir::Fail("keep_float is for what octavo quantizes: leave it out, or use another recipe, of a float graph");
  std::ranges::copy(keep_float, std::back_inserter(pipeline.keep_float));
  return pipeline;
}

Result<Pipeline> WithDynamic(Pipeline pipeline, const std::vector<std::string>& linears) {
  if (linears.empty()) return pipeline;
  const auto has = [&pipeline](const char* pass) {
    return std::ranges::find(pipeline.passes, pass) != pipeline.passes.end();
  };
  if (!has("quantize") || !has("dynamic")) {
    OCTAVO_TRY(pipeline,
               WithPass(std::move(pipeline),
                        {"dynamic",
                         {"quantize"},
                         true,
                         "dynamic names Linears that recipe int8 of a float graph would give one activation scale "
                         "for all rows: leave it out, or use that recipe"}));
  }
  std::ranges::copy(linears, std::back_inserter(pipeline.dynamic));
  return pipeline;
}

bool CarriesPipeline(const Graph& graph) { return graph.info.metadata.contains(kPipelineKey); }

Result<Pipeline> PipelineOfGraph(const Graph& graph) {
  const auto it = graph.info.metadata.find(kPipelineKey);
  if (it == graph.info.metadata.end()) {
    return ir::Fail("the file carries no pipeline: it was not made by octavo optimize");
  }
  return ir::Closed("the pipeline in the file's metadata", [&] { return PipelineFromJson(it->second); });
}

void RecordPipeline(const Pipeline& pipeline, Graph& graph) {
  graph.info.metadata[kPipelineKey] = PipelineToJson(pipeline);
  graph.info.metadata[kVersionKey] = OCTAVO_VERSION;
}

namespace {

Status RunAll(const std::vector<std::string>& passes, Graph& graph, PassRun& run, const ManagerOptions& options) {
  const Registry& registry = options.registry != nullptr ? *options.registry : Registry::Own();
  OCTAVO_TRY_STATUS(ir::Inference::Run(graph).transform([](const auto&) {}));
  for (const std::string& name : passes) {
    const Pass* pass = registry.Find(name);
    if (pass == nullptr) return ir::Fail("there is no pass '{}'; there are: {}", name, registry.Names());
    OCTAVO_TRY(const PassOptions given,
               OptionsOf(pass->info(), options.pipeline != nullptr ? *options.pipeline : Pipeline()));
    if (options.before) OCTAVO_TRY_STATUS(options.before(*pass));
    run.options = &given;
    const auto start = std::chrono::steady_clock::now();
    Result<bool> changed = RunPass(*pass, graph, run);
    run.options = nullptr;
    if (!changed) return ir::Fail("in pass {}: {}", name, changed.error().message);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (options.timings != nullptr) options.timings->push_back({name, *changed, took.count()});
    if (*changed && options.after) options.after(name, graph);
  }
  return {};
}

}  // namespace

Status RunPasses(const std::vector<std::string>& passes, Graph& graph, PassRun& run, const ManagerOptions& options) {
  return ir::Closed("changing the graph", [&] { return RunAll(passes, graph, run, options); });
}

}  // namespace octavo::passes
