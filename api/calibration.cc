// Gathering ranges: the taps, and the runs that fill them.
#include <algorithm>
#include <format>

#include "octavo/api/attempt.h"
#include "octavo/api/callers.h"
#include "octavo/ir/text.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/sources.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;

namespace {

// What calibration observes: every value that will be quantized, and the channels of what Linears read, of keys, and of queries by heads.
std::vector<quant::Tap> TapsOf(const Graph& graph, const passes::Pipeline& pipeline) {
  const passes::quantize::Sites sites = passes::quantize::FindSites(graph, pipeline.keep_float);
  std::vector<quant::Tap> taps;
  for (ir::ValueId v : sites.values) {
    taps.push_back(quant::MakeTap(graph, v));
    taps.back().moments = std::any_of(sites.linears.begin(), sites.linears.end(),
                                      [&](ir::NodeId id) { return graph.node(id).inputs[0] == v; });
    taps.back().channels =
        taps.back().moments || std::any_of(sites.attentions.begin(), sites.attentions.end(), [&](ir::NodeId id) {
          const ir::Node& n = graph.node(id);
          const int64_t k_rank = n.attrs.Int("k_rank", 4);
          const bool by_heads = k_rank == 4 && n.attrs.Int("q_rank", 4) == 4;
          return (n.inputs[1] == v && (k_rank == 3 || by_heads)) || (n.inputs[0] == v && by_heads);
        });
  }
  return taps;
}

}  // namespace

std::string Fingerprint(const Graph& graph) {
  const std::string text = ir::ToText(graph, {.elide_constants_above = 16, .types = false, .origin = false});
  uint64_t h = 1469598103934665603ULL;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ULL;
  return std::format("{:016x}", h);
}

CalibrationTask TaskOf(Graph graph, const passes::Pipeline& pipeline, std::string fingerprint) {
  CalibrationTask task;
  task.taps = TapsOf(graph, pipeline);
  task.fingerprint = fingerprint.empty() ? Fingerprint(graph) : std::move(fingerprint);
  task.graph = std::move(graph);
  return task;
}

namespace {

Result<CalibrationTask> Prepare(Graph graph, const OptimizeOptions& options) {
  OCTAVO_TRY(const passes::Pipeline pipeline, PipelineOf(options, graph));
  passes::TellSourcesApart(graph);
  passes::PassRun context;
  context.arch = options.arch;
  OCTAVO_TRY_STATUS(passes::RunPasses(Cut(pipeline).before, graph, context,
                                      {.registry = &RegistryOf(options), .after = {}, .pipeline = &pipeline}));
  return TaskOf(std::move(graph), pipeline);
}

// Whether the model says that all its inputs are rows of one batch, and that what is observed has such rows.
bool TakesRows(const CalibrationTask& task) {
  std::string batch;
  for (const ir::ValueId v : task.graph.inputs()) {
    const auto& shape = task.graph.value(v).type.shape;
    const std::string symbol = shape && !shape->empty() ? shape->front().symbol() : "";
    if (symbol.empty() || (!batch.empty() && symbol != batch)) return false;
    batch = symbol;
  }
  return std::ranges::none_of(task.taps, [](const quant::Tap& tap) { return tap.batch_axis < 0 && !tap.by_sizes; });
}

}  // namespace

Result<quant::Calibration> Calibrated(const CalibrationTask& task, quant::DataSource& data,
                                      const OptimizeOptions& options, const quant::Calibration* resume,
                                      DataSeen* seen) {
  Graph tapped = task.graph;
  const size_t own_outputs = tapped.outputs().size();
  for (const quant::Tap& tap : task.taps) tapped.AddOutput("tap:" + tap.value, tapped.FindValue(tap.value));
  OCTAVO_TRY(const GraphRun run, RunOf(tapped, options));
  const quant::Runner runner = [&](const ir::TensorMap& inputs) -> Result<ir::TensorMap> {
    OCTAVO_TRY(std::vector<ir::Tensor> outputs, run(inputs));
    if (seen != nullptr) seen->Add(task.graph, inputs);
    ir::TensorMap values;
    // The model's own outputs take room, too.
    for (size_t i = 0; i < own_outputs; ++i) values[std::format("output {} of the model", i)] = std::move(outputs[i]);
    for (size_t i = 0; i < task.taps.size(); ++i) values[task.taps[i].value] = std::move(outputs[own_outputs + i]);
    return values;
  };
  quant::CalibrateOptions how;
  how.model = task.fingerprint;
  how.in_rows = TakesRows(task);
  how.stop = options.stop;
  how.resume = resume;
  for (const auto& [input, rows] : quant::IdLimits(task.graph)) how.ids.push_back(input);
  how.progress = [&](int64_t done, int64_t total) {
    if (seen != nullptr) seen->batches = done;  // and not their parts
    if (options.progress) options.progress("calibrate", done, total);
  };
  return quant::Calibrate(task.taps, data, runner, how);
}

Result<CalibrationTask> PrepareCalibration(Graph graph, const OptimizeOptions& options) {
  Callers callers(options);
  return callers.Closed("preparing the calibration", graph,
                        [&] { return Prepare(std::move(graph), callers.options()); });
}

Result<quant::Calibration> RunCalibration(const CalibrationTask& task, quant::DataSource& data,
                                          const OptimizeOptions& options, const quant::Calibration* resume) {
  Callers callers(options, &data);
  return callers.Closed("calibrating", task.graph, [&] {
    quant::DataSource& closed = *callers.options().data;
    const bool goes_on = resume != nullptr && !resume->moments.empty();
    return options.moments || goes_on ? CalibratedWithMoments(task, closed, callers.options(), resume)
                                      : Calibrated(task, closed, callers.options(), resume);
  });
}

}  // namespace octavo::api
