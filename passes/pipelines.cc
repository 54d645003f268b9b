#include "octavo/passes/pipelines.h"

#include <algorithm>
#include <chrono>

#include "octavo/ir/closed.h"
#include "octavo/ir/json.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/guard.h"
#include "octavo/passes/quantize/caches.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::passes {

const char* const kCalibrate = "calibrate";

namespace {

constexpr const char* kVersion = "0.1.0";
constexpr const char* kPipelineKey = "octavo.pipeline";
constexpr const char* kVersionKey = "octavo.version";

std::string KnownNames() {
  std::string names;
  for (const Pass& p : AllPasses()) names += (names.empty() ? "" : ", ") + std::string(p.name);
  return names;
}

}  // namespace

const std::vector<Pass>& AllPasses() {
  static const auto* const passes = [] {
    auto* all = new std::vector<Pass>;
    all->push_back(
        {"canonical", canonical::Canonicalize, "brings every exporter's graph to one form; exact but for `scale`"});
    for (const Pass& p : canonical::CanonicalPasses()) all->push_back(p);
    all->push_back({"fuse_float", fusions::FuseFloat, "attention, LayerNorm, GELU, skip + norm in float"});
    all->push_back({"qkv_float", fusions::FuseQkvFloat, "Q, K and V projections as one MatMul"});
    all->push_back({"to_f32", quantize::ToF32, "a model in f16 or bf16 becomes one in f32; inputs and outputs stay"});
    all->push_back({"smooth", quantize::Smooth,
                    "evens out the channels that norms and activations hand to Linears, by calibrated channel ranges"});
    all->push_back({"reduce_range", quantize::ReduceRange,
                    "int8 weights of the next passes get 7 bits: faster on CPUs without VNNI, half as precise"});
    all->push_back({"fit_weights", quantize::FitWeights,
                    "finds codes of int8 weights that make up for each other's errors on the calibration data"});
    all->push_back({"quantize", quantize::Quantize, "inserts Q/DQ by the calibrated ranges and quantizes weights"});
    all->push_back({"quantize_fp8", quantize::Quantize, "the same in E4M3FN; ranges are then chosen for that type"});
    all->push_back({"quantize_caches", quantize::QuantizeCaches,
                    "KV caches that attention reads as codes enter and leave the graph as codes; same bits"});
    all->push_back({"quantize_tables", quantize::QuantizeTables, "embedding tables to s8, one scale per row"});
    all->push_back({"dynamic", quantize::Dynamic,
                    "float Linears to int8, activations quantized at run time with one scale and zero point a row"});
    all->push_back(
        {"weights4", quantize::Weights4, "weights to u4 in blocks of 32 with zero points; activations stay float"});
    all->push_back(
        {"weights4_symmetric", quantize::Weights4Symmetric, "weights to s4 in blocks of 32; activations stay float"});
    all->push_back({"weights8", quantize::Weights8, "weights to s8 in blocks of 64; activations stay float"});
    all->push_back({"fuse_weights", fusions::FuseWeights, "products with weights in blocks become one op"});
    all->push_back({"dynamic_blocks", quantize::DynamicBlocks,
                    "those products quantize activations at run time, one scale a block: several times as fast"});
    all->push_back({"fuse_int8", fusions::FuseInt8, "Q/DQ attention, linears and norms become int8 ops; exact"});
    all->push_back({"qkv_int8", fusions::FuseQkvInt8, "int8 projections of one attention become one op; exact"});
    all->push_back(
        {"relative_probs", fusions::RelativeProbs,
         "int8 attention quantizes exponentials, relative to the largest of a row, instead of probabilities"});
    all->push_back({"tables", fusions::FuseTables,
                    "element-wise functions between codes of 8 bits become tables of 256 codes; exact"});
    all->push_back({"windows", fusions::FuseWindows,
                    "causal and window masks become attributes of attention; exact for finite scores"});
    all->push_back({"flash", fusions::UseFlash,
                    "attention over tiles of keys, in fixed memory; rounding differs, and int8 no longer quantizes P "
                    "as the graph does"});
    all->push_back({"integer_form", vendor::IntegerForm,
                    "MatMulInteger with its scales becomes a MatMul of DequantizeLinears; exact"});
    all->push_back({"fuse_around", vendor::FuseAroundAttention, "fuse_float without attention, before int8 rules"});
    all->push_back({"fuse_left", vendor::FuseAttentionLeft, "attention in float where int8 rules left it; exact"});
    all->push_back({"why_not_int8", vendor::WhyNotInt8, "says what keeps attention out of int8; changes nothing"});
    return all;
  }();
  return *passes;
}

const Pass* FindPass(std::string_view name) {
  for (const Pass& p : AllPasses()) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

Result<Pipeline> PipelineOfRecipe(std::string_view recipe) {
  if (recipe == "float")
    return Pipeline{{"canonical", "fuse_float", "fuse_weights", "qkv_float", "windows", "canonical"}};
  if (recipe == "dynamic") {
    return Pipeline{{"to_f32", "canonical", "fuse_float", "canonical", "fit_weights", "dynamic", "quantize_tables",
                     "qkv_int8", "windows", "cse", "dce"}};
  }
  if (recipe == "weights4" || recipe == "weights8") {
    return Pipeline{{"to_f32", "canonical", "fuse_float", "canonical", std::string(recipe), "quantize_tables",
                     "fuse_weights", "windows", "cse", "dce"}};
  }
  if (recipe == "dynamic4") {
    return Pipeline{{"to_f32", "canonical", "fuse_float", "canonical", "weights4", "quantize_tables", "fuse_weights",
                     "dynamic_blocks", "windows", "cse", "dce"}};
  }
  if (recipe == "int8") {
    return Pipeline{{"to_f32", "canonical", "fuse_float", "canonical", kCalibrate, "smooth", "fit_weights", "quantize",
                     "cse", "qdq", "relative_probs", "fuse_int8", "qkv_int8", "windows", "cse", "dce"}};
  }
  // No smoothing: fp8 keeps its relative precision over 15 binary orders, whatever the channels' sizes.
  if (recipe == "fp8") {
    return Pipeline{{"to_f32", "canonical", "fuse_float", "canonical", kCalibrate, "quantize_fp8", "cse", "qdq",
                     "fuse_int8", "qkv_int8", "windows", "cse", "dce"}};
  }
  // For graphs that arrive quantized: no scale is chosen, none is changed.
  if (recipe == "quantized") {
    return Pipeline{{"canonical", "integer_form", "fuse_around", "canonical", "fuse_int8", "qkv_int8", "tables",
                     "fuse_weights", "why_not_int8", "fuse_left", "windows", "cse", "dce"}};
  }
  return ir::Fail("there is no recipe '{}': use float, int8, fp8, dynamic, dynamic4, quantized, weights4 or weights8",
                  recipe);
}

namespace {

// Puts `pass` before or behind the first of `places`, or gives `refusal`.
Result<Pipeline> With(Pipeline pipeline, const char* pass, std::initializer_list<std::string_view> places, bool behind,
                      std::string_view refusal) {
  const auto it = std::ranges::find_first_of(pipeline.passes, places);
  if (it == pipeline.passes.end()) return ir::Fail("{}", refusal);
  pipeline.passes.insert(it + (behind ? 1 : 0), pass);
  return pipeline;
}

}  // namespace

Result<Pipeline> WithReducedRange(Pipeline pipeline) {
  return With(std::move(pipeline), "reduce_range", {"smooth", "fit_weights", "dynamic"}, false,
              "reduce_range is for weights that octavo quantizes to int8: leave it out, or use the recipes int8 and "
              "dynamic of a float graph");
}

Result<Pipeline> WithFloat(Pipeline pipeline, const std::vector<std::string>& keep_float) {
  const auto quantizes = [](const std::string& pass) {
    return pass.starts_with("quantize") || pass.starts_with("weights") || pass == "dynamic";
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
    OCTAVO_TRY(pipeline, With(std::move(pipeline), "dynamic", {"quantize"}, true,
                              "dynamic names Linears that recipe int8 of a float graph would give one activation scale "
                              "for all rows: leave it out, or use that recipe"));
  }
  std::ranges::copy(linears, std::back_inserter(pipeline.dynamic));
  return pipeline;
}

Result<Pipeline> WithQuantizedCaches(Pipeline pipeline) {
  return With(
      std::move(pipeline), "quantize_caches", {"quantize", "quantize_fp8"}, true,
      "caches become codes by the ranges of a calibration: leave quantize_kv_cache out, or use the recipes int8 "
      "and fp8 of a float graph");
}

Result<Pipeline> PipelineFromJson(std::string_view json) {
  OCTAVO_TRY(const ir::Json parsed, ir::ParseJson(json, "the pipeline"));
  if (!parsed.is_object()) return ir::Fail("the pipeline is not a JSON object");
  if (ir::Get<int64_t>(parsed, "octavo_pipeline") != 1)
    return ir::Fail("the pipeline does not say \"octavo_pipeline\": 1; make it with this octavo");
  Pipeline pipeline;
  for (const auto& [key, names] : {std::pair{"passes", &pipeline.passes},
                                   {"keep_float", &pipeline.keep_float},
                                   {"dynamic", &pipeline.dynamic}}) {
    if (names != &pipeline.passes && !parsed.contains(key)) continue;
    auto list = ir::Get<std::vector<std::string>>(parsed, key);
    if (!list) return ir::Fail("the pipeline's \"{}\" must be a list of names", key);
    *names = std::move(*list);
  }
  for (const std::string& name : pipeline.passes) {
    if (name != kCalibrate && FindPass(name) == nullptr)
      return ir::Fail("there is no pass {}; there are: {}", ir::Quoted(name), KnownNames());
  }
  if (std::ranges::count(pipeline.passes, kCalibrate) > 1) return ir::Fail("the pipeline calibrates more than once");
  return pipeline;
}

std::string PipelineToJson(const Pipeline& pipeline) {
  nlohmann::ordered_json json{{"octavo_pipeline", 1}, {"passes", pipeline.passes}};
  if (!pipeline.keep_float.empty()) json["keep_float"] = pipeline.keep_float;
  if (!pipeline.dynamic.empty()) json["dynamic"] = pipeline.dynamic;
  return ir::Dump(json);
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
  graph.info.metadata[kVersionKey] = kVersion;
}

namespace {

Status RunAll(const std::vector<std::string>& passes, Graph& graph, PassContext& context,
              const ManagerOptions& options) {
  OCTAVO_TRY_STATUS(ir::Inference::Run(graph).transform([](const auto&) {}));
  for (const std::string& name : passes) {
    const Pass* pass = FindPass(name);
    if (pass == nullptr) return ir::Fail("there is no pass '{}'; there are: {}", name, KnownNames());
    const auto start = std::chrono::steady_clock::now();
    Result<bool> changed = RunPass(*pass, graph, context);
    if (!changed) return ir::Fail("in pass {}: {}", name, changed.error().message);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (options.timings != nullptr) options.timings->push_back({name, *changed, took.count()});
    if (*changed && options.after) options.after(name, graph);
  }
  return {};
}

}  // namespace

Status RunPasses(const std::vector<std::string>& passes, Graph& graph, PassContext& context,
                 const ManagerOptions& options) {
  return ir::Closed("changing the graph", [&] { return RunAll(passes, graph, context, options); });
}

}  // namespace octavo::passes
