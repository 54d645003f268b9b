#include "octavo/api/optimize.h"

#include <algorithm>
#include <chrono>
#include <format>
#include <memory>
#include <optional>

#include "octavo/api/alternatives.h"
#include "octavo/api/attempt.h"
#include "octavo/api/bodies.h"
#include "octavo/api/callers.h"
#include "octavo/api/layers.h"
#include "octavo/api/parts.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/log.h"
#include "octavo/passes/bodies.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;
using ir::Status;

namespace {

// Before any work: what cannot be done.
Status Check(const Graph& graph, const OptimizeOptions& options) {
  OCTAVO_TRY(const passes::Pipeline pipeline, PipelineOf(options, graph));
  const char* what = options.min_db       ? "min_db"
                     : options.min_cosine ? "min_cosine"
                     : options.max_kl     ? "max_kl"
                                          : "layers";
  if (!options.layers && !HasGoal(options)) return {};
  if (options.data == nullptr)
    return ir::Fail("{} runs batches of calibration data: give calibration=; a .calib file has none", what);
  if (!passes::WithFloat(pipeline, {"*"}))
    return ir::Fail("{} is about layers that are quantized, and this recipe quantizes none: leave it out", what);
  return {};
}

// What is lost of the goal. An error where there is none to be told.
Result<Spent> WhatIsSpent(const Optimized& result, const OptimizeOptions& options, const Evidence& evidence) {
  if (options.max_kl && !result.losses.empty() && result.loss_details.rows.empty())
    return ir::Fail(
        "max_kl: no output of the model has rows of logits or probabilities; min_cosine is about other outputs");
  if (std::optional<Spent> spent = SpentOf(result, options)) return *std::move(spent);
  return ir::Fail("min_db, min_cosine and max_kl: there is nothing to measure: {}",
                  evidence.why_unseen.empty() ? "the model has no float output" : evidence.why_unseen);
}

// Measures the layers where that is asked for or needed, and optimizes once more with the types that keep the goal.
Status LookAtLayers(const Graph& model, const OptimizeOptions& options, Evidence& evidence, Optimized& result) {
  OCTAVO_TRY(const std::vector<LayerLoss> all, LayersOf(model, result.report, options));
  OCTAVO_TRY(const Spent spent, HasGoal(options) ? WhatIsSpent(result, options, evidence) : Spent());
  const bool enough = spent.lost <= 1;
  std::vector<LayerLoss> layers = all;
  if (options.layers) OCTAVO_TRY_STATUS(QuantizeAlone(model, all, layers, options, evidence));
  OptimizeOptions chosen = options;
  std::optional<Optimized> made;
  if (!enough) {
    if (!options.layers) OCTAVO_TRY_STATUS(QuantizeGroups(model, all, layers, options, evidence));
    OCTAVO_TRY(made, ChooseTypes(model, layers, chosen, evidence, spent));
  }
  if (made && !options.after_pass) {
    result = std::move(*made);
  } else if (HasGoal(options) && (!enough || options.after_pass)) {
    OCTAVO_TRY(result, OptimizeOnce(model, chosen, evidence));
  }
  for (LayerLoss& layer : layers) {  // choose_rows has a say, too
    if (layer.type == "quantized" &&
        std::ranges::find(result.pipeline.dynamic, layer.node) != result.pipeline.dynamic.end())
      layer.type = "dynamic";
  }
  if (!enough && std::ranges::all_of(layers, [](const LayerLoss& l) { return l.type == "float"; })) {
    result.notes.push_back(
        std::format("{} {:g} leaves every layer in float, so nothing is quantized: ask for less, or give other data",
                    spent.goal, spent.asked));
  }
  if (options.layers || !enough) result.layers = std::move(layers);
  return {};
}

// What evidence has of one call alone: what losses are measured on ends with it, and where attempts start are bodies as this recipe made them.
class OfOneCall {
 public:
  explicit OfOneCall(Evidence& evidence) : evidence_(evidence) { evidence_.start.reset(); }
  ~OfOneCall() { evidence_.start.reset(), evidence_.measured_on = nullptr; }
  OfOneCall(const OfOneCall&) = delete;
  OfOneCall& operator=(const OfOneCall&) = delete;

 private:
  Evidence& evidence_;
};

Result<Optimized> OptimizeWatched(Graph graph, const OptimizeOptions& options) {
  Evidence evidence;
  return OptimizeAgain(std::move(graph), options, evidence);
}

// The same, and what else would keep more where much was lost.
Result<Optimized> OptimizeAdvised(Graph graph, const OptimizeOptions& options) {
  Evidence evidence;
  const Graph model = options.data != nullptr ? graph : Graph();
  OCTAVO_TRY(Optimized result, OptimizeAgain(std::move(graph), options, evidence));
  OCTAVO_TRY_STATUS(NoteAlternatives(model, options, evidence, result));
  if (options.explain && !evidence.samples.empty() && !options.other_runtime)
    result.added = LayersOn(model, result.graph, evidence.samples[0].inputs, CompileOptionsOf(options));
  return result;
}

// A table without rows is easily taken for a success.
Result<Optimized> WithNoteOfNothing(Result<Optimized> result) {
  if (!result) return result;
  const passes::Report& report = result->report;
  const bool found = report.attention.found + report.qkv.found + report.linear.found > 0 ||
                     std::ranges::any_of(report.candidates, [](const auto& c) { return c.kind == "experts"; });
  if (!found)
    result->notes.emplace_back(
        "neither attention nor a Linear was found in the model, so there is nothing that octavo fuses or quantizes but "
        "chains of element-wise ops and tables");
  return result;
}

}  // namespace

Result<Optimized> OptimizeAgain(Graph graph, const OptimizeOptions& options_given, Evidence& evidence) {
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, int> source_ops = OpCounts(graph);
  Drawing source = Draw(graph);
  OCTAVO_TRY_STATUS(Check(graph, options_given));
  OCTAVO_TRY(const Parts parts, PartsOf(graph, options_given, evidence));
  const OfOneCall call(evidence);
  OptimizeOptions parted = options_given;
  if (parts.seen) parted.data = parts.seen.get();
  evidence.measured_on = parts.measured.get(), evidence.held_out = parts.seen != nullptr;
  const OptimizeOptions options = WithoutNamesWithin(graph, parted);
  const Graph whole = options.data != nullptr ? graph : Graph();
  OCTAVO_TRY(std::vector<OptimizedBody> bodies, OptimizeBodies(graph, parted, OptimizeWatched));
  if (!bodies.empty() && options.data != nullptr && evidence.samples.empty()) {
    OCTAVO_TRY(evidence.samples, SamplesOf(whole, options, evidence));  // of the model as it came
  }
  const bool looks = options.layers || HasGoal(options);
  const Graph model = looks ? graph : Graph();
  OptimizeOptions first = options;
  if (HasGoal(options)) first.after_pass = nullptr;  // the last attempt calls it
  OCTAVO_TRY(Optimized result, OptimizeOnce(std::move(graph), first, evidence));
  if (looks) OCTAVO_TRY_STATUS(LookAtLayers(model, options, evidence, result));
  if (!bodies.empty()) {
    passes::ShareConstants(result.graph);
    Join(std::move(bodies), result);
  }
  // Names of the file are in sentences.
  for (std::string& note : result.notes) note = ir::Cleaned({std::move(note)}).message;
  for (passes::Candidate& c : result.report.candidates) c.reason = ir::Cleaned({std::move(c.reason)}).message;
  result.source_ops = std::move(source_ops);
  result.source = std::move(source);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::map<std::string, int> OpCounts(const Graph& g) {
  std::map<std::string, int> counts;
  for (ir::NodeId id : g.NodesInOrder()) {
    const ir::Node& n = g.node(id);
    if (n.op != ir::Op::kConstant) ++counts[n.op == ir::Op::kOpaque ? n.op_type : std::string(ir::InfoOf(n.op).name)];
  }
  return counts;
}

Result<Optimized> Optimize(Graph graph, const OptimizeOptions& options) {
  Callers callers(options);
  // A session that opens a model optimizes it without explanation, and has no use for what it could have been told.
  const ir::LogLevel level = options.explain ? ir::LogLevel::kWarning : ir::LogLevel::kInfo;
  return callers.Closed("optimizing the model", graph, [&] {
    auto result = WithNoteOfNothing(OptimizeAdvised(std::move(graph), callers.options()));
    for (size_t i = 0; result && i < result->notes.size(); ++i) ir::Log(level, "{}", result->notes[i]);
    return result;
  });
}

}  // namespace octavo::api
