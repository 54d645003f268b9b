#include "octavo/api/layers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "octavo/api/options.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;
using ir::Status;

Result<std::vector<LayerLoss>> LayersOf(const Graph& model, const passes::Report& report,
                                        const OptimizeOptions& options) {
  OptimizeOptions any = WithoutAdded(options);
  any.recipe = "int8", any.pipeline.reset(), any.keep_float.clear(), any.dynamic.clear(), any.pass_options.clear(),
  any.bits.reset();
  OCTAVO_TRY(const CalibrationTask task, PrepareCalibration(model, any));
  const passes::quantize::Sites sites = passes::quantize::FindSites(task.graph, options.keep_float);
  std::set<std::string> centers;
  for (const passes::Candidate& c : report.candidates) {
    if (c.kind == "attention") centers.insert(c.nodes[0]);
  }
  std::vector<LayerLoss> layers;
  for (const ir::NodeId id : sites.linears) {
    const ir::Node& n = task.graph.node(id);
    layers.push_back({.node = OriginName(n), .kind = "linear", .activation = task.graph.value(n.inputs[0]).name});
  }
  for (const ir::NodeId id : sites.attentions) {
    const ir::Node& n = task.graph.node(id);
    const auto center = std::ranges::find_if(n.origin, [&](const auto& o) { return centers.contains(o); });
    layers.push_back({.node = center != n.origin.end() ? *center : OriginName(n), .kind = "attention"});
  }
  for (const ir::NodeId id : sites.tables) layers.push_back({.node = OriginName(task.graph.node(id)), .kind = "table"});
  return layers;
}

std::vector<Sample> FewOf(const std::vector<Sample>& samples) {
  std::vector<Sample> few;
  int64_t left = 4;
  for (auto sample = samples.begin(); sample != samples.end() && left > 0; ++sample) {
    few.push_back(FirstRows(*sample, left));
    left = sample->rows == 0 ? 0 : left - few.back().rows;
  }
  return few;
}

namespace {

// What is lost where only these nodes are quantized, for `layer` to take over; false: there is nothing to measure.
Result<bool> Measure(const Graph& model, const std::vector<LayerLoss>& all, const std::vector<std::string>& nodes,
                     OptimizeOptions one, Evidence& evidence, LayerLoss& layer) {
  for (const LayerLoss& other : all) {
    if (!std::ranges::contains(nodes, other.node)) one.keep_float.push_back(other.node);
  }
  OCTAVO_TRY(const Optimized alone, OptimizeOnce(model, one, evidence));
  const std::optional<Spent> spent = SpentOf(alone, one);
  if (!spent) return false;
  layer.lost = spent->lost, layer.output = spent->output, layer.stats = alone.losses.at(spent->output);
  const auto rows = alone.loss_details.rows.find(spent->output);
  if (rows != alone.loss_details.rows.end()) layer.kl = rows->second.MeanKl();
  return true;
}

// By the share that each has; whatever is not finite has all of it.
void SetShares(std::vector<LayerLoss>& layers) {
  double sum = 0;
  for (const LayerLoss& layer : layers) sum += layer.share;
  for (LayerLoss& layer : layers)
    layer.share = sum == 0 ? 0 : std::isinf(sum) ? (std::isinf(layer.share) ? 1 : 0) : layer.share / sum;
  std::ranges::stable_sort(layers, std::greater(), &LayerLoss::share);
}

// For one layer or group: what a search asks for is left out.
OptimizeOptions ForOne(const OptimizeOptions& options) {
  OptimizeOptions one = options;
  one.data = nullptr, one.calibration = nullptr, one.explain = false, one.progress = nullptr, one.after_pass = nullptr;
  return one;
}

Status NextOf(const OptimizeOptions& options, size_t done, size_t total) {
  if (options.progress) options.progress("layers", static_cast<int64_t>(done), static_cast<int64_t>(total));
  return options.stop != nullptr && options.stop->load() ? ir::Fail("interrupted") : Status();
}

}  // namespace

Status QuantizeGroups(const Graph& model, const std::vector<LayerLoss>& all, std::vector<LayerLoss>& measured,
                      const OptimizeOptions& options, Evidence& evidence) {
  if (evidence.samples.empty()) return {};
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < measured.size(); ++i) {
    const auto together = std::ranges::find_if(groups, [&](const std::vector<size_t>& group) {
      return !measured[i].activation.empty() && measured[group[0]].activation == measured[i].activation;
    });
    (together == groups.end() ? groups.emplace_back() : *together).push_back(i);
  }
  std::vector<Sample> whole = std::exchange(evidence.samples, FewOf(evidence.samples));
  const auto measure = [&]() -> Status {
    for (size_t g = 0; g < groups.size(); ++g) {
      OCTAVO_TRY_STATUS(NextOf(options, g, groups.size()));
      std::vector<std::string> nodes;
      for (const size_t i : groups[g]) nodes.push_back(measured[i].node);
      LayerLoss together;
      OCTAVO_TRY(const bool is_known, Measure(model, all, nodes, ForOne(options), evidence, together));
      if (!is_known) return {};
      for (const size_t i : groups[g]) {
        LayerLoss& one = measured[i];
        one.output = together.output, one.stats = together.stats, one.kl = together.kl, one.lost = together.lost;
        one.share = one.lost / static_cast<double>(nodes.size());
      }
    }
    SetShares(measured);
    return {};
  };
  const Status done = measure();
  evidence.samples = std::move(whole);
  return done;
}

Status QuantizeAlone(const Graph& model, const std::vector<LayerLoss>& all, std::vector<LayerLoss>& measured,
                     const OptimizeOptions& options, Evidence& evidence) {
  for (size_t i = 0; i < measured.size(); ++i) {
    LayerLoss& layer = measured[i];
    OCTAVO_TRY_STATUS(NextOf(options, i, measured.size()));
    OCTAVO_TRY(const bool is_known, Measure(model, all, {layer.node}, ForOne(options), evidence, layer));
    if (!is_known) return measured.clear(), Status();
    layer.share = layer.lost;
  }
  SetShares(measured);
  return {};
}

}  // namespace octavo::api
