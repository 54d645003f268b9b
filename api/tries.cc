#include "octavo/api/tries.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "octavo/api/attempt.h"
#include "octavo/api/callers.h"
#include "octavo/api/layers.h"

namespace octavo::api {

using ir::Result;

Tries::Tries(ir::Graph model, quant::DataSource& data)
    : model_(std::move(model)), data_(data), evidence_(std::make_unique<Evidence>()) {}
Tries::~Tries() = default;

Result<Optimized> Tries::Optimize(OptimizeOptions options, bool refine) {
  options.data = &data_;
  options.fit = options.fit && refine;
  // What int8 has fitted is no part of what another recipe makes without.
  std::map<uint64_t, passes::quantize::ColumnWeights> aside;
  if (!refine && options.recipe != "int8") aside.swap(evidence_->fitted);
  Callers callers(options);
  auto result = callers.Closed("optimizing the model", model_,
                               [&] { return OptimizeAgain(model_, callers.options(), *evidence_); });
  evidence_->fitted.merge(aside);
  if (result && options.recipe == "int8" && options.keep_float.empty()) report_ = result->report;
  return result;
}

Result<std::vector<LayerLoss>> Tries::Layers(OptimizeOptions options) {
  options.recipe = "int8", options.data = nullptr;
  Callers callers(options);
  return callers.Closed("looking for layers", model_, [&]() -> Result<std::vector<LayerLoss>> {
    OCTAVO_TRY(layers_, LayersOf(model_, report_, callers.options()));
    return layers_;
  });
}

Result<double> Tries::NoiseOf(const std::vector<std::string>& nodes, bool dynamic, OptimizeOptions options) {
  if (layers_.empty() || evidence_->samples.empty())
    return ir::Fail(
        "there is nothing to measure: the model has no layer that int8 quantizes, or no batch ran through it");
  options.recipe = "int8", options.data = nullptr, options.explain = false;
  if (dynamic) options.dynamic = nodes;
  for (const LayerLoss& layer : layers_) {
    if (std::ranges::find(nodes, layer.node) == nodes.end()) options.keep_float.push_back(layer.node);
  }
  Callers callers(options);
  return callers.Closed("quantizing a layer alone", model_, [&]() -> Result<double> {
    if (few_.empty()) few_ = FewOf(evidence_->samples);
    std::vector<Sample> whole = std::exchange(evidence_->samples, few_);
    auto alone = OptimizeOnce(model_, callers.options(), *evidence_);
    evidence_->samples = std::move(whole);
    if (!alone) return std::unexpected(alone.error());
    const Lost lost = MostLost(*alone);
    if (lost.output.empty()) return ir::Fail("there is nothing to measure: the model has no float output");
    return std::min(lost.value, std::numeric_limits<double>::max());
  });
}

}  // namespace octavo::api
