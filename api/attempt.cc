#include "octavo/api/attempt.h"

#include <algorithm>
#include <format>
#include <utility>

#include "octavo/api/lost.h"
#include "octavo/passes/quantize/moments.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/sources.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/runtime/threads.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;
using ir::Status;

runtime::CompileOptions CompileOptionsOf(const OptimizeOptions& options) {
  return {.arch = options.arch,
          .threads = options.threads,
          .rows_alone = true,
          .interrupted = [stop = options.stop, asked = options.interrupted] {
            return (stop != nullptr && stop->load()) || (asked && asked());
          }};
}

Result<GraphRun> RunOf(Graph graph, const OptimizeOptions& options, std::shared_ptr<runtime::PackedWeightsSet> packed) {
  if (options.other_runtime) return options.other_runtime(graph, options.threads);
  runtime::CompileOptions how = CompileOptionsOf(options);
  how.packed = std::move(packed);
  OCTAVO_TRY(runtime::Model compiled, runtime::Model::Compile(std::move(graph), how));
  const auto model = std::make_shared<runtime::Model>(std::move(compiled));
  return GraphRun([model](const ir::TensorMap& inputs) { return model->Run(inputs); });
}

Result<std::vector<Sample>> SamplesOf(const Graph& graph, const OptimizeOptions& options, const Evidence& evidence) {
  constexpr int64_t kMostBytes = 256 << 20;  // of outputs, which are kept; one sample whatever it takes
  constexpr int64_t kMostRows = 128, kMostBatches = 16;
  const bool are_rows = evidence.cut->are_rows;
  std::vector<Sample> samples;
  evidence.measured_on->Rewind();
  OCTAVO_TRY(const GraphRun run, RunOf(graph, options));
  int64_t room = are_rows ? kMostRows : kMostBatches;
  for (int64_t bytes = kMostBytes; room > 0 && bytes > 0;) {
    OCTAVO_TRY(auto batch, evidence.measured_on->Next());
    if (!batch) break;
    OCTAVO_TRY(ir::TensorMap outputs, NamedOutputs(run, graph, {}, batch->inputs));
    const int64_t number = are_rows ? batch->inputs.begin()->second.shape()[0] : 1;
    int64_t each = 0;
    for (const auto& [name, output] : outputs) each += static_cast<int64_t>(output.byte_size()) / number;
    const int64_t fit = std::min(room, each == 0 ? room : (bytes + each - 1) / each);
    samples.push_back(FirstRows({std::move(batch->inputs), std::move(outputs), are_rows ? number : 0}, fit));
    room -= number, bytes -= number * each;
  }
  return samples;
}

namespace {

// Nothing is quantized but weights, in blocks: fuse_weights takes them in every recipe that has it.
bool OnlyWeightsInBlocks(const Graph& graph) {
  Graph without = graph;
  for (const ir::NodeId id : without.NodesInOrder()) {
    const ir::Node& n = without.node(id);
    const bool weights =
        n.op == ir::Op::kLinearBlocked || (n.op == ir::Op::kDequantizeLinear && n.attrs.Int("block_size", 0) > 0);
    if (weights) without.ReplaceAllUses(n.output(), n.input(0)), without.Erase(id);
  }
  return !passes::vendor::IsQuantized(without);
}

// What a graph that arrives quantized makes of the recipe; empty: nothing.
std::string NoteOfQuantized(const OptimizeOptions& options, const Graph& graph, const passes::Pipeline& pipeline) {
  if (options.pipeline || options.recipe == "quantized" || !passes::vendor::IsQuantized(graph)) return {};
  if (options.recipe == "int8" || options.recipe == "fp8") {
    return std::format(
        "the model is quantized already: '{}' fuses it with the scales it has and quantizes nothing more",
        options.recipe);
  }
  const bool fuses = std::ranges::find(pipeline.passes, "fuse_weights") != pipeline.passes.end();
  if (fuses && OnlyWeightsInBlocks(graph)) return {};
  return std::format(
      "the model is quantized already, at least in part, and '{}' leaves that part as it is: recipe "
      "'quantized' fuses it",
      options.recipe);
}

// In 40 parts; empty where all values are one.
std::vector<uint64_t> HistogramOf(const quant::Observer& observer) {
  constexpr size_t kParts = 40;
  const double low = observer.min(), width = (static_cast<double>(observer.max()) - low) / kParts;
  if (!(width > 0)) return {};
  std::vector<uint64_t> parts(kParts, 0);
  for (const quant::Bin& bin : observer.Bins()) {  // narrower than a part, but near 0 and at the ends
    const double middle = (bin.lo + bin.hi) / 2;
    parts[static_cast<size_t>(std::clamp((middle - low) / width, 0.0, kParts - 1.0))] += bin.count;
  }
  return parts;
}

// What the report says of every value that got parameters.
std::vector<ActivationRange> RangesOf(const quant::QuantPlan& plan, const quant::Calibration& calibration) {
  std::vector<ActivationRange> ranges;
  for (const auto& [value, entry] : plan.entries()) {
    const quant::Observer* observer = calibration.Find(value);
    if (!entry.params || !entry.range || observer == nullptr) continue;
    ranges.push_back({.value = value,
                      .seen = {observer->min(), observer->max()},
                      .chosen = *entry.range,
                      .params = *entry.params,
                      .histogram = HistogramOf(*observer)});
  }
  return ranges;
}

// Whether a pass of the list is one of those that the predicate means.
template <typename F>
bool Any(const std::vector<std::string>& names, const passes::Registry& registry, F&& is) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    const passes::Pass* pass = registry.Find(name);
    return pass != nullptr && is(pass->info());
  });
}

// The type that ranges are chosen for.
ir::DType DTypeOf(const passes::Pipeline& pipeline, const passes::Registry& registry) {
  const bool fp8 = Any(pipeline.passes, registry, [](const auto& p) { return p.leaves == passes::Form::kFp8; });
  return fp8 ? ir::DType::kE4M3FN : ir::DType::kU8;
}

// Decides that what was asked for stays float. An error where a name fits nothing.
Status KeepNamed(const Graph& graph, passes::PassRun& context) {
  const passes::quantize::Sites sites = passes::quantize::FindSites(graph);
  std::vector<ir::NodeId> nodes = sites.linears;
  nodes.insert(nodes.end(), sites.attentions.begin(), sites.attentions.end());
  nodes.insert(nodes.end(), sites.tables.begin(), sites.tables.end());
  const auto check = [&graph](const char* what, const char* kinds, const std::vector<std::string>& names,
                              const std::vector<ir::NodeId>& among) -> Status {
    for (const std::string& name : names) {
      const auto fits = [&](ir::NodeId id) { return passes::quantize::IsNamed({name}, graph.node(id)); };
      if (std::ranges::any_of(among, fits)) continue;
      return ir::Fail("{}: no {} is called '{}'; names are those of the report's nodes{}", what, kinds, name,
                      among.empty() ? "" : std::format(", such as '{}'", OriginName(graph.node(among[0]))));
    }
    return {};
  };
  OCTAVO_TRY_STATUS(check("keep_float", "Linear, attention core or table", context.keep_float, nodes));
  OCTAVO_TRY_STATUS(check("dynamic", "Linear", context.dynamic, sites.linears));
  const auto keep = [&context](const std::string& source) {
    context.log.push_back("keep_float: " + source + " stays float");
    context.decisions.push_back(
        {.node = source, .fate = passes::Decision::Fate::kKept, .rule = "keep_float", .reason = {}, .culprit = {}});
  };
  for (const ir::NodeId id : nodes) {
    const ir::Node& n = graph.node(id);
    if (!passes::quantize::IsNamed(context.keep_float, n)) continue;
    for (const std::string& source : n.origin) {
      if (!source.starts_with("pass:")) keep(source);
    }
    if (n.origin.empty()) keep(n.name);
  }
  return {};
}

passes::ChannelStats StatsOf(const quant::Observer& observer) {
  passes::ChannelStats stats;
  for (const auto& c : observer.channels()) stats.ranges.emplace_back(c.lo, c.hi);
  if (stats.ranges.empty() || observer.count() == 0) return stats;
  double sum = 0;
  for (const quant::Bin& bin : observer.Bins()) sum += static_cast<double>(bin.count) * bin.lo * bin.hi;
  stats.mean_square = sum / static_cast<double>(observer.count());
  stats.rows = observer.count() / stats.ranges.size();
  stats.row_powers = observer.RowPowers();
  return stats;
}

class Attempt {
 public:
  Attempt(Graph graph, const OptimizeOptions& options, Evidence& evidence)
      : graph_(std::move(graph)),
        options_(options),
        registry_(RegistryOf(options)),
        threads_(options.threads),
        evidence_(evidence) {
    if (options.data != nullptr && evidence.samples.empty()) model_ = graph_;
    context_.arch = options.arch;
    context_.fitted = std::move(evidence.fitted);
    context_.misses = options.explain ? &result_.misses : nullptr;
    context_.parallel = [this](int64_t n, const std::function<void(int64_t)>& task) { threads_.For(n, task); };
    context_.step = [&options](int64_t done, int64_t total) {
      if (options.progress) options.progress("quantize", done, total);
      return options.stop == nullptr || !options.stop->load();
    };
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  Result<Optimized> Run() {
    passes::TellSourcesApart(graph_);
    OCTAVO_TRY(result_.pipeline, PipelineOf(options_, graph_));
    context_.keep_float = result_.pipeline.keep_float;
    context_.dynamic = result_.pipeline.dynamic;
    if (std::string note = NoteOfQuantized(options_, graph_, result_.pipeline); !note.empty())
      result_.notes.push_back(std::move(note));
    halves_ = Cut(result_.pipeline);
    if (options_.data == nullptr && !HasMoments(options_) && options_.fit &&
        Any(halves_.after, registry_, [](const auto& p) {
          return (p.leaves == passes::Form::kQdq || p.leaves == passes::Form::kFp8) && p.needs == passes::Need::kRanges;
        })) {
      result_.notes.emplace_back(
          "a .calib file holds ranges: with the data itself, or a file of octavo.calibrate(moments=True), weights "
          "would "
          "be fitted to it, which is nearer to the model");
    }
    OCTAVO_TRY_STATUS(RunFirstHalf());
    result_.before = graph_;
    if (halves_.calibrates) {
      OCTAVO_TRY_STATUS(MakePlan());
      OCTAVO_TRY_STATUS(RunPasses(halves_.after));
    }
    evidence_.fitted = std::move(context_.fitted);
    Report();
    if (const Status told = TellLosses(); !told) {
      evidence_.why_unseen = told.error().message;
      result_.notes.push_back("the result could not be compared with the model as it was: " + evidence_.why_unseen);
    }
    if (options_.other_runtime) NoteWhatDoesNotRun();
    if (result_.random_data)
      result_.notes.emplace_back("the calibration data is random; the ranges, and so the accuracy, mean little");
    return std::move(result_);
  }

 private:
  void TakeInventory() {
    result_.report = passes::TakeInventory(graph_);
    for (auto& c : passes::vendor::QOperatorCandidates(graph_)) result_.report.candidates.push_back(std::move(c));
    inventory_ = true;
  }

  void UseData() {
    if (options_.data == nullptr) return;
    result_.data = options_.data->Describe();
    result_.random_data = options_.data->random();
  }

  Status RunPasses(const std::vector<std::string>& list) {
    return passes::RunPasses(list, graph_, context_,
                             {.registry = &registry_,
                              .before = [this](const passes::Pass& pass) { return Prepare(pass.info()); },
                              .after = options_.after_pass,
                              .timings = &result_.timings,
                              .pipeline = &result_.pipeline});
  }

  // The passes before ranges are gathered, where no attempt before this one has been through them.
  Status RunFirstHalf() {
    const bool searches = halves_.calibrates && !options_.pipeline &&
                          result_.pipeline.foreign.empty();  // whose passes may ask for what differs
    std::optional<Start>& start = evidence_.start;
    const bool known = searches && start && start->IsOf(halves_.before, options_.pass_options, options_.explain);
    if (known && !options_.after_pass) {
      graph_ = start->graph, result_.report = start->report, result_.timings = start->timings;
      if (options_.explain) result_.misses = start->misses;
      inventory_ = at_start_ = true;
      TellAgain(start->told, context_);
      KeepForOthers();
      return {};
    }
    OCTAVO_TRY_STATUS(RunPasses(halves_.before));
    at_start_ = searches && inventory_;
    if (!at_start_) return {};
    if (!known) {
      start = Start{.passes = halves_.before,
                    .options = options_.pass_options,
                    .explained = options_.explain,
                    .graph = graph_,
                    .told = ToldBy(context_),
                    .misses = result_.misses,
                    .report = result_.report,
                    .timings = result_.timings};
    }
    KeepForOthers();
    return {};
  }

  // What the attempts behind this one need not make again.
  void KeepForOthers() {
    if (HasGoal(options_)) kept_for_others_ = &*evidence_.start, context_.tables = &kept_for_others_->tables;
  }

  // What must be there before the pass runs.
  Status Prepare(const passes::PassInfo& pass) {
    using passes::Form;
    // Stock is taken of the canonical graph, before the first pass that fuses or quantizes.
    if (!inventory_ && pass.takes != Form::kAny) TakeInventory();
    if (!unfused_ && pass.takes == Form::kQdq && pass.leaves == Form::kInt8) {
      result_.unfused = graph_;
      unfused_ = true;
    }
    if (passes::Quantizes(pass)) OCTAVO_TRY_STATUS(KeepNames());
    return pass.needs == passes::Need::kMoments ? OfferMoments(pass) : Status();
  }

  Status KeepNames() { return std::exchange(kept_, true) ? Status() : KeepNamed(graph_, context_); }

  Status OfferMoments(const passes::PassInfo& pass) {
    const quant::Calibration* file = options_.data == nullptr ? options_.calibration : nullptr;
    if (file != nullptr && file->moments.empty() && passes::Quantizes(pass)) {
      return ir::Fail(
          "a .calib file holds ranges; {} fits weights to the data itself, so give that, or a file of "
          "octavo.calibrate(moments=True), or nothing",
          pass.name);
    }
    if (!options_.fit || (file == nullptr ? options_.data == nullptr : file->moments.empty())) return {};
    if (file != nullptr && !halves_.calibrates) OCTAVO_TRY_STATUS(file->CheckModel(Fingerprint(graph_)));
    context_.evidence.moments = [this, file, at_hand = graph_](auto values, auto into) -> Status {
      const MomentsAsked asked{at_hand,  halves_.calibrates ? result_.before : at_hand,
                               context_, values,
                               into,     kept_for_others_ != nullptr ? &kept_for_others_->moments : nullptr};
      return file != nullptr ? MomentsOfFile(asked, *file) : MomentsOfData(asked, options_);
    };
    UseData();
    return {};
  }

  Status MakePlan() {
    OCTAVO_TRY_STATUS(KeepNames());
    const CalibrationTask task = TaskOf(graph_, result_.pipeline, at_start_ ? evidence_.start->fingerprint : "");
    if (at_start_) evidence_.start->fingerprint = task.fingerprint;
    if (!task.taps.empty()) {
      OCTAVO_TRY_STATUS(GatherRanges(task));
      const ir::DType dtype = DTypeOf(result_.pipeline, registry_);
      const auto [known, fresh] = evidence_.plans.try_emplace({options_.calibrator, dtype});
      if (fresh) {
        auto made = quant::MakePlan(evidence_.ranges, {.calibrator = options_.calibrator, .dtype = dtype});
        if (!made) return evidence_.plans.erase(known), std::unexpected(std::move(made).error());
        known->second.ranges = RangesOf(*made, evidence_.ranges);
        known->second.plan = std::move(*made);
      }
      result_.plan = known->second.plan, result_.ranges = known->second.ranges;
      if (!evidence_.ranges.random_data) result_.ids = evidence_.ranges.ids;
      for (std::string& note : NotesOfData(graph_, evidence_.seen, evidence_.ranges))
        result_.notes.push_back(std::move(note));
    }
    context_.evidence.channels = [this](std::string_view value) {
      const quant::Observer* observer = evidence_.ranges.Find(value);
      return observer == nullptr ? passes::ChannelStats() : StatsOf(*observer);
    };
    context_.evidence.qparams = [this](std::string_view value) { return result_.plan.ParamsOf(value); };
    return {};
  }

  Status GatherRanges(const CalibrationTask& task) {
    if (options_.calibration != nullptr) {
      OCTAVO_TRY_STATUS(options_.calibration->CheckModel(task.fingerprint));
      evidence_.ranges = *options_.calibration, evidence_.plans.clear();
      return {};
    }
    UseData();
    if (Known(task)) return {};
    if (options_.data != nullptr) {
      evidence_.seen = {};
      OCTAVO_TRY(evidence_.ranges, Calibrated(task, *options_.data, options_, nullptr, &evidence_.seen));
      evidence_.plans.clear();
      return {};
    }
    const passes::quantize::Sites sites = passes::quantize::FindSites(graph_, context_.keep_float);
    const auto counted = [](size_t n, std::string_view what) {
      return std::format("{} {}{}", n, what, n == 1 ? "" : "s");
    };
    return ir::Fail(
        "this pipeline quantizes {} and {} and needs calibration data: give a folder of .npz "
        "batches, texts or pictures (octavo.text_batches, octavo.image_batches), or random:N to try it out",
        counted(sites.linears.size(), "Linear"), counted(sites.attentions.size(), "attention core"));
  }

  // Whether earlier attempts have gathered these ranges. Without data there is no choice.
  bool Known(const CalibrationTask& task) const {
    const quant::Calibration& ranges = evidence_.ranges;
    if (ranges.values.empty()) return false;
    return options_.data == nullptr ||
           (ranges.model == task.fingerprint && std::ranges::all_of(task.taps, [&](const quant::Tap& tap) {
              const quant::Observer* seen = ranges.Find(tap.value);
              return seen != nullptr && (!tap.channels || !seen->channels().empty());
            }));
  }

  void Report() {
    if (!inventory_) result_.report = passes::TakeInventory(graph_);
    passes::Judge(graph_, context_, result_.report);
    for (auto& c : context_.candidates) result_.report.candidates.push_back(std::move(c));
    std::vector<std::string> foreign;
    for (const auto& [name, version] : result_.pipeline.foreign) foreign.push_back(name);
    for (auto& c : passes::RewritesOf(foreign, context_)) result_.report.candidates.push_back(std::move(c));
    result_.pipeline.dynamic = context_.dynamic;  // with those that choose_rows added
    passes::RecordPipeline(result_.pipeline, graph_);
    result_.graph = std::move(graph_);
    result_.log = std::move(context_.log);
    std::ranges::move(context_.notes, std::back_inserter(result_.notes));
  }

  // Another runtime ran the model on the data: whether octavo's would.
  void NoteWhatDoesNotRun() {
    const auto compiled = runtime::Model::Compile(result_.graph, CompileOptionsOf(options_));
    if (!compiled)
      result_.notes.push_back("the data ran through another runtime, and octavo itself will not run the file: " +
                              compiled.error().message);
    if (!compiled && !options_.reduce_range && (options_.recipe == "int8" || options_.recipe == "dynamic"))
      result_.notes.push_back(
          "ONNX Runtime's sums of 8 bits saturate on CPUs without VNNI, so the file loses more there; reduce_range "
          "keeps them right");
  }

  // Fills in losses, and a note where they are large.
  Status TellLosses() {
    if (evidence_.measured_on == nullptr && evidence_.samples.empty()) return {};
    if (options_.progress) options_.progress("compare", 0, 1);
    if (evidence_.samples.empty()) {
      OCTAVO_TRY(evidence_.samples, SamplesOf(model_, options_, evidence_));
    }
    const auto packed = at_start_ ? evidence_.start->packed : nullptr;
    OCTAVO_TRY(const GraphRun run, RunOf(result_.graph, options_, packed));
    if (packed != nullptr) KeepPackedOf(evidence_.start->graph, *packed);
    OCTAVO_TRY(result_.losses, LossesOf(run, result_.graph, evidence_.samples, &result_.loss_details));
    result_.loss_details.held_out = evidence_.held_out;
    if (options_.progress) options_.progress("compare", 1, 1);
    const Losses::value_type* worst = Worst(result_.losses);
    constexpr double kFewDb = 10;  // a tenth of the power is error
    if (worst == nullptr || Decibels(worst->second) >= kFewDb) return {};
    result_.notes.push_back(
        std::format("output '{}' is far from that of the model as it was, {:.1f} dB (cosine {:.4f}) on {}: "
                    "min_db chooses types until it is near enough; other data, another calibrator or the recipe "
                    "'dynamic' may keep more; octavo.compare looks at all batches",
                    worst->first, worst->second.SqnrDb(), worst->second.Cosine(), WhatWasSeen(result_.loss_details)));
    return {};
  }

  Graph graph_, model_;
  const OptimizeOptions& options_;
  const passes::Registry& registry_;
  runtime::Threads threads_;
  Evidence& evidence_;
  passes::PassRun context_;
  Optimized result_;
  Halves halves_;
  Start* kept_for_others_ = nullptr;
  bool inventory_ = false, unfused_ = false, kept_ = false, at_start_ = false;
};

}  // namespace

Result<Optimized> OptimizeOnce(Graph graph, const OptimizeOptions& options, Evidence& evidence) {
  return Attempt(std::move(graph), options, evidence).Run();
}

}  // namespace octavo::api
