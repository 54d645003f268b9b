#include "octavo/api/layers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "octavo/api/options.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;
using ir::Status;

Result<std::vector<LayerLoss>> LayersOf(const Graph& model, const passes::Report& report,
                                        const OptimizeOptions& options) {
  OptimizeOptions any = WithoutAdded(options);
  any.recipe = "int8", any.pipeline.reset(), any.keep_float.clear(), any.dynamic.clear(), any.pass_options.clear();
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

Status QuantizeAlone(const Graph& model, const std::vector<LayerLoss>& all, std::vector<LayerLoss>& measured,
                     const OptimizeOptions& options, Evidence& evidence) {
  OptimizeOptions one = options;
  one.data = nullptr, one.calibration = nullptr, one.explain = false, one.progress = nullptr, one.after_pass = nullptr;
  double sum = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    LayerLoss& layer = measured[i];
    if (options.progress) options.progress("layers", static_cast<int64_t>(i), static_cast<int64_t>(measured.size()));
    if (options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
    one.keep_float = options.keep_float;
    for (const LayerLoss& other : all) {
      if (other.node != layer.node) one.keep_float.push_back(other.node);
    }
    OCTAVO_TRY(const Optimized alone, OptimizeOnce(model, one, evidence));
    const Losses::value_type* worst = Worst(alone.losses);
    if (worst == nullptr) return measured.clear(), Status();
    layer.output = worst->first;
    layer.stats = worst->second;
    layer.share = std::pow(10, -worst->second.SqnrDb() / 10);
    sum += layer.share;
  }
  for (LayerLoss& layer : measured) layer.share = sum > 0 ? layer.share / sum : 0;
  std::ranges::stable_sort(measured, std::greater(), &LayerLoss::share);
  return {};
}

}  // namespace octavo::api
