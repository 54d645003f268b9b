#include "octavo/api/optimize.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <format>
#include <set>

#include "octavo/ir/text.h"
#include "octavo/passes/quantize/moments.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;
using ir::Status;

namespace {

// The passes before and after the place where ranges are gathered.
struct Halves {
  std::vector<std::string> before, after;
  bool calibrates = false;
};
Halves Cut(const passes::Pipeline& pipeline) {
  Halves h;
  for (const std::string& p : pipeline.passes) {
    if (p == passes::kCalibrate) {
      h.calibrates = true;
    } else {
      (h.calibrates ? h.after : h.before).push_back(p);
    }
  }
  return h;
}

// A graph that arrives quantized keeps its scales: int8 then means to fuse what is there.
Result<passes::Pipeline> PipelineOf(const OptimizeOptions& options, const Graph& graph) {
  if (options.pipeline && (options.reduce_range || options.quantize_kv_cache))
    return ir::Fail(
        "reduce_range and quantize_kv_cache go with a recipe; in a pipeline of your own put the pass 'reduce_range' "
        "before 'quantize', 'quantize_caches' behind it");
  if (options.pipeline) return passes::WithFloat(*options.pipeline, options.keep_float);
  const bool fuses = (options.recipe == "int8" || options.recipe == "fp8") && passes::vendor::IsQuantized(graph);
  OCTAVO_TRY(passes::Pipeline pipeline, passes::PipelineOfRecipe(fuses ? "quantized" : options.recipe));
  if (options.reduce_range) {
    OCTAVO_TRY(pipeline, passes::WithReducedRange(std::move(pipeline)));
  }
  if (options.quantize_kv_cache) {
    OCTAVO_TRY(pipeline, passes::WithQuantizedCaches(std::move(pipeline)));
  }
  return passes::WithFloat(std::move(pipeline), options.keep_float);
}

// What a graph that arrives quantized makes of the recipe; empty: nothing.
std::string NoteOfQuantized(const OptimizeOptions& options, const Graph& graph) {
  if (options.pipeline || options.recipe == "quantized" || !passes::vendor::IsQuantized(graph)) return {};
  if (options.recipe == "int8" || options.recipe == "fp8") {
    return std::format(
        "the model is quantized already: '{}' fuses it with the scales it has and quantizes nothing more",
        options.recipe);
  }
  return std::format(
      "the model is quantized already, at least in part, and '{}' leaves that part as it is: recipe "
      "'quantized' fuses it",
      options.recipe);
}

// FNV-1a over the text form without large constants: the same model and the same octavo give the same fingerprint.
std::string Fingerprint(const Graph& graph) {
  const std::string text = ir::ToText(graph, {.elide_constants_above = 16, .types = false, .origin = false});
  uint64_t h = 1469598103934665603ULL;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ULL;
  return std::format("{:016x}", h);
}

// What the report says of every value that got parameters.
std::vector<ActivationRange> RangesOf(const quant::QuantPlan& plan, const quant::Calibration& calibration) {
  std::vector<ActivationRange> ranges;
  for (const auto& [value, entry] : plan.entries()) {
    const quant::Observer* observer = calibration.Find(value);
    if (!entry.params || !entry.range || observer == nullptr) continue;
    ranges.push_back({value, {observer->min(), observer->max()}, *entry.range, *entry.params});
  }
  return ranges;
}

// What calibration observes: every value that will be quantized, and the channels of what Linears read.
std::vector<quant::Tap> TapsOf(const Graph& graph, const passes::Pipeline& pipeline) {
  const passes::quantize::Sites sites = passes::quantize::FindSites(graph, pipeline.keep_float);
  std::vector<quant::Tap> taps;
  for (ir::ValueId v : sites.values) {
    taps.push_back(quant::MakeTap(graph, v));
    taps.back().channels = std::any_of(sites.linears.begin(), sites.linears.end(),
                                       [&](ir::NodeId id) { return graph.node(id).inputs[0] == v; });
  }
  return taps;
}

// The type that ranges are chosen for.
ir::DType DTypeOf(const passes::Pipeline& pipeline) {
  const bool fp8 = std::count(pipeline.passes.begin(), pipeline.passes.end(), "quantize_fp8") > 0;
  return fp8 ? ir::DType::kE4M3FN : ir::DType::kU8;
}

// Says in the log what stays float because it was asked for. An error where a name fits nothing.
Status LogKept(const Graph& graph, passes::PassContext& context) {
  const passes::quantize::Sites sites = passes::quantize::FindSites(graph);
  std::vector<ir::NodeId> nodes = sites.linears;
  nodes.insert(nodes.end(), sites.attentions.begin(), sites.attentions.end());
  nodes.insert(nodes.end(), sites.tables.begin(), sites.tables.end());
  for (const std::string& name : context.keep_float) {
    const auto fits = [&](ir::NodeId id) { return passes::quantize::Keeps({name}, graph.node(id)); };
    if (std::ranges::any_of(nodes, fits)) continue;
    return ir::Fail(
        "keep_float: no Linear, attention core or table is called '{}'; names are those of the report's nodes{}", name,
        nodes.empty() ? "" : std::format(", such as '{}'", OriginName(graph.node(nodes[0]))));
  }
  for (const ir::NodeId id : nodes) {
    const ir::Node& n = graph.node(id);
    if (!passes::quantize::Keeps(context.keep_float, n)) continue;
    for (const std::string& source : n.origin) context.log.push_back(passes::KeptLine(source));
    context.log.push_back(passes::KeptLine(n.name));
  }
  return {};
}

Status NeedsData(const passes::quantize::Sites& sites, const OptimizeOptions& options) {
  if (sites.values.empty() || options.data != nullptr || options.calibration != nullptr) return {};
  return ir::Fail(
      "this pipeline quantizes {} Linears and {} attention cores and needs calibration data: give a folder of .npz "
      "batches, or random:N to try it out",
      sites.linears.size(), sites.attentions.size());
}

}  // namespace

Result<CalibrationTask> PrepareCalibration(Graph graph, const OptimizeOptions& options) {
  OCTAVO_TRY(const passes::Pipeline pipeline, PipelineOf(options, graph));
  passes::PassContext context;
  context.arch = options.arch;
  OCTAVO_TRY_STATUS(passes::RunPasses(Cut(pipeline).before, graph, context));
  CalibrationTask task;
  task.taps = TapsOf(graph, pipeline);
  task.fingerprint = Fingerprint(graph);
  task.graph = std::move(graph);
  return task;
}

Result<quant::Calibration> RunCalibration(const CalibrationTask& task, quant::DataSource& data,
                                          const OptimizeOptions& options, Sample* first) {
  Graph tapped = task.graph;
  const size_t own_outputs = tapped.outputs().size();
  for (const quant::Tap& tap : task.taps) tapped.AddOutput("tap:" + tap.value, tapped.FindValue(tap.value));
  OCTAVO_TRY(const runtime::Model model,
             runtime::Model::Compile(std::move(tapped), {.arch = options.arch, .threads = options.threads}));
  const quant::Runner runner = [&](const ir::TensorMap& inputs) -> Result<ir::TensorMap> {
    OCTAVO_TRY(std::vector<ir::Tensor> outputs, model.Run(inputs));
    if (first != nullptr && first->outputs.empty()) {
      first->inputs = inputs;
      for (size_t i = 0; i < own_outputs; ++i) first->outputs[model.outputs()[i].name] = outputs[i];
    }
    ir::TensorMap values;
    for (size_t i = 0; i < task.taps.size(); ++i) values[task.taps[i].value] = std::move(outputs[own_outputs + i]);
    return values;
  };
  quant::CalibrateOptions how;
  how.model = task.fingerprint;
  how.stop = options.stop;
  if (options.progress) {
    how.progress = [&](int64_t done, int64_t total) { options.progress("calibrate", done, total); };
  }
  return quant::Calibrate(task.taps, data, runner, how);
}

namespace {

// What the pass weights4 asks for: the data through the graph as it stood before that pass.
Status FillMoments(const Graph& graph, std::span<const ir::ValueId> values,
                   std::span<passes::quantize::SecondMoments> into, const OptimizeOptions& options, Sample* first) {
  CalibrationTask task{graph, {}, Fingerprint(graph)};
  auto next = into.begin();
  for (const ir::ValueId value : values) {
    task.taps.push_back(quant::MakeTap(graph, value));
    task.taps.back().rows = [&moments = *next++](std::span<const float> rows, size_t) { moments.Add(rows); };
  }
  OCTAVO_TRY_STATUS(RunCalibration(task, *options.data, options, first).transform([](const auto&) {}));
  if (options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
  return {};
}

runtime::CompileOptions CompileOptionsOf(const OptimizeOptions& options) {
  return {.arch = options.arch, .threads = options.threads, .interrupted = [stop = options.stop] {
            return stop != nullptr && stop->load();
          }};
}

// The first batch and what `graph` makes of it.
Result<Sample> SampleOf(const Graph& graph, const OptimizeOptions& options) {
  options.data->Rewind();
  OCTAVO_TRY(const auto batch, options.data->Next());
  if (!batch) return Sample{};
  OCTAVO_TRY(const runtime::Model model, runtime::Model::Compile(graph, CompileOptionsOf(options)));
  OCTAVO_TRY(ir::TensorMap outputs, NamedOutputs(model, {}, batch->inputs));
  return Sample{batch->inputs, std::move(outputs)};
}

// Fills in losses, and a note where they are large. first: the sample, where calibration has seen one; model: as it came.
Status TellLosses(Optimized& result, const Graph& model, Sample& first, const OptimizeOptions& options) {
  if (options.progress) options.progress("compare", 0, 1);
  if (first.outputs.empty()) {
    OCTAVO_TRY(first, SampleOf(model, options));
  }
  OCTAVO_TRY(result.losses, LossesOf(result.graph, first, CompileOptionsOf(options)));
  if (options.progress) options.progress("compare", 1, 1);
  const Losses::value_type* worst = Worst(result.losses);
  constexpr double kFewDb = 10;  // a tenth of the power is error
  if (worst == nullptr || (worst->second.mismatches() == 0 && worst->second.SqnrDb() >= kFewDb)) return {};
  result.notes.push_back(std::format(
      "output '{}' is far from that of the model as it was, {:.1f} dB (cosine {:.4f}) on the first batch: other data, "
      "another calibrator or the recipe 'dynamic' may keep more; `octavo compare` looks at all batches",
      worst->first, worst->second.SqnrDb(), worst->second.Cosine()));
  return {};
}

// Names of what a recipe would quantize, each by the one of the report where that has one.
Result<std::vector<std::string>> LayersOf(const Graph& model, const passes::Report& report,
                                          const OptimizeOptions& options) {
  OptimizeOptions any = options;
  any.recipe = "int8", any.pipeline.reset(), any.keep_float.clear(), any.reduce_range = any.quantize_kv_cache = false;
  OCTAVO_TRY(const CalibrationTask task, PrepareCalibration(model, any));
  const passes::quantize::Sites sites = passes::quantize::FindSites(task.graph, options.keep_float);
  std::set<std::string> centers;
  for (const passes::Candidate& c : report.candidates) {
    if (c.kind == "attention") centers.insert(c.nodes[0]);
  }
  std::vector<std::string> names;
  for (const auto* of_kind : {&sites.linears, &sites.attentions, &sites.tables}) {
    for (const ir::NodeId id : *of_kind) {
      const ir::Node& n = task.graph.node(id);
      const auto center = std::ranges::find_if(n.origin, [&](const auto& o) { return centers.contains(o); });
      names.push_back(of_kind == &sites.attentions && center != n.origin.end() ? *center : OriginName(n));
    }
  }
  return names;
}

// Most loss first. Each layer once, all others in float, by the ranges that are known.
Result<std::vector<LayerLoss>> LayersAlone(const Graph& model, const passes::Report& report, const Sample& first,
                                           const quant::Calibration& ranges, const OptimizeOptions& options) {
  OCTAVO_TRY(const std::vector<std::string> names, LayersOf(model, report, options));
  OptimizeOptions one = options;
  one.data = nullptr, one.layers = one.explain = false, one.progress = nullptr, one.after_pass = nullptr;
  one.calibration = ranges.values.empty() ? nullptr : &ranges;
  std::vector<LayerLoss> layers;
  double sum = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (options.progress) options.progress("layers", static_cast<int64_t>(i), static_cast<int64_t>(names.size()));
    if (options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
    one.keep_float = options.keep_float;
    for (const std::string& other : names) {
      if (other != names[i]) one.keep_float.push_back(other);
    }
    OCTAVO_TRY(const Optimized alone, Optimize(model, one));
    OCTAVO_TRY(const Losses losses, LossesOf(alone.graph, first, CompileOptionsOf(options)));
    const Losses::value_type* worst = Worst(losses);
    if (worst == nullptr) return layers;
    const double share = std::pow(10, -worst->second.SqnrDb() / 10);
    sum += share;
    layers.push_back({names[i], worst->first, worst->second, share});
  }
  for (LayerLoss& layer : layers) layer.share = sum > 0 ? layer.share / sum : 0;
  std::ranges::stable_sort(layers, std::greater(), &LayerLoss::share);
  return layers;
}

}  // namespace

Result<Optimized> Optimize(Graph graph, const OptimizeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Optimized result;
  OCTAVO_TRY(result.pipeline, PipelineOf(options, graph));
  if (options.layers && options.data == nullptr)
    return ir::Fail("layers runs the first batch of calibration data: give that (--calib); a .calib file has none");
  if (options.layers && !passes::WithFloat(result.pipeline, {"*"}))
    return ir::Fail("layers tells which quantized layers lose most, and this recipe quantizes none: leave it out");
  if (std::string note = NoteOfQuantized(options, graph); !note.empty()) result.notes.push_back(std::move(note));
  const Halves halves = Cut(result.pipeline);
  passes::PassContext context;
  context.arch = options.arch;
  context.misses = options.explain ? &result.misses : nullptr;
  context.keep_float = result.pipeline.keep_float;
  context.step = [&options](int64_t done, int64_t total) {
    if (options.progress) options.progress("quantize", done, total);
    return options.stop == nullptr || !options.stop->load();
  };
  const passes::ManagerOptions manager{.after = options.after_pass, .timings = &result.timings};
  const Graph model = options.data != nullptr ? graph : Graph();
  Sample first;
  bool inventory = false;
  const auto run = [&](const std::vector<std::string>& list) -> Status {
    for (const std::string& pass : list) {
      // Stock is taken of the canonical graph, before the first pass that fuses.
      if (!inventory && (pass.starts_with("fuse") || pass.starts_with("q"))) {
        result.report = passes::TakeInventory(graph);
        for (auto& c : passes::vendor::QOperatorCandidates(graph)) result.report.candidates.push_back(std::move(c));
        inventory = true;
      }
      if (pass == "fuse_int8") result.unfused = graph;
      if (pass == "dynamic" || pass.starts_with("weights")) OCTAVO_TRY_STATUS(LogKept(graph, context));
      if (pass.starts_with("weights4") && options.data == nullptr && options.calibration != nullptr) {
        return ir::Fail("a .calib file holds ranges; {} fits weights to the data itself, so give that, or nothing",
                        pass);
      }
      if (pass.starts_with("weights4") && options.data != nullptr) {
        context.moments = [&options, &first, at_hand = graph](auto values, auto into) {
          return FillMoments(at_hand, values, into, options, &first);
        };
        result.data = options.data->Describe();
        result.random_data = options.data->random();
      }
      OCTAVO_TRY_STATUS(passes::RunPasses({pass}, graph, context, manager));
    }
    return {};
  };
  OCTAVO_TRY_STATUS(run(halves.before));
  result.before = graph;
  quant::Calibration gathered;
  if (halves.calibrates) {
    OCTAVO_TRY_STATUS(LogKept(graph, context));
    const passes::quantize::Sites sites = passes::quantize::FindSites(graph, context.keep_float);
    OCTAVO_TRY_STATUS(NeedsData(sites, options));
    if (!sites.values.empty()) {
      const CalibrationTask task{graph, TapsOf(graph, result.pipeline), Fingerprint(graph)};
      if (options.calibration != nullptr) {
        OCTAVO_TRY_STATUS(options.calibration->CheckModel(task.fingerprint));
      } else {
        OCTAVO_TRY(gathered, RunCalibration(task, *options.data, options, &first));
        result.data = options.data->Describe();
        result.random_data = options.data->random();
      }
      if (options.calibration != nullptr) gathered = *options.calibration;
      OCTAVO_TRY(result.plan,
                 quant::MakePlan(gathered, {.calibrator = options.calibrator, .dtype = DTypeOf(result.pipeline)}));
      result.ranges = RangesOf(result.plan, gathered);
    }
    context.channels = [&gathered](std::string_view value) {
      std::vector<std::pair<float, float>> ranges;
      const quant::Observer* observer = gathered.Find(value);
      if (observer == nullptr) return ranges;
      for (const auto& c : observer->channels()) ranges.emplace_back(c.lo, c.hi);
      return ranges;
    };
    context.qparams = [&result](std::string_view value) { return result.plan.ParamsOf(value); };
    OCTAVO_TRY_STATUS(run(halves.after));
  }
  if (!inventory) result.report = passes::TakeInventory(graph);
  passes::Judge(graph, result.misses, context.log, result.report);
  for (auto& c : context.candidates) result.report.candidates.push_back(std::move(c));
  passes::RecordPipeline(result.pipeline, graph);
  result.graph = std::move(graph);
  result.log = std::move(context.log);
  std::ranges::move(context.notes, std::back_inserter(result.notes));
  if (options.data != nullptr) {
    if (const Status told = TellLosses(result, model, first, options); !told)
      result.notes.push_back("the result could not be compared with the model as it was: " + told.error().message);
    if (options.layers) {
      OCTAVO_TRY(result.layers, LayersAlone(model, result.report, first, gathered, options));
    }
  }
  if (result.random_data)
    result.notes.emplace_back("the calibration data is random; the ranges, and so the accuracy, mean little");
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace octavo::api
