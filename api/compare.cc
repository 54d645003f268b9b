#include "octavo/api/compare.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "octavo/api/compare_layers.h"
#include "octavo/api/loss.h"

namespace octavo::api {

using nlohmann::ordered_json;

ir::Result<Comparison> Compare(ir::Graph a, ir::Graph b, const CompareOptions& options) {
  const auto caches_a = passes::quantize::CodedCaches(a), caches_b = passes::quantize::CodedCaches(b);
  OCTAVO_TRY(const auto data, options.open_data(caches_a.empty() ? a : b));
  const auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  const runtime::CompileOptions how{.threads = options.threads, .interrupted = options.interrupted};
  std::optional<LayerPairs> layers;
  if (options.layers) layers.emplace(a, b);
  OCTAVO_TRY(const runtime::Model first, runtime::Model::Compile(std::move(a), how));
  OCTAVO_TRY(const runtime::Model second, runtime::Model::Compile(std::move(b), how));
  Comparison done;
  while (!interrupted()) {
    OCTAVO_TRY(auto batch, data->Next());
    if (!batch) break;
    auto want = NamedOutputs(first, caches_a, batch->inputs);
    if (!want && interrupted()) break;
    if (!want) return ir::Fail("{}: {}", options.a, want.error().message);
    auto got = NamedOutputs(second, caches_b, batch->inputs);
    if (!got && interrupted()) break;
    if (!got) return ir::Fail("{}: {}", options.b, got.error().message);
    if (layers) OCTAVO_TRY_STATUS(layers->Add(batch->inputs, *want, *got));
    LeaveOutPadding(batch->inputs, *want);
    LeaveOutPadding(batch->inputs, *got);
    OCTAVO_TRY_STATUS(quant::AddErrors(*want, *got, done.outputs));
    ++done.batches;
    if (options.progress) options.progress("compare", done.batches, data->size());
  }
  if (layers) done.layers = layers->Differences();
  return done;
}

namespace {

// Where all inputs begin with one symbol, the first rows of each.
void CutToFewRows(const ir::Graph& graph, ir::TensorMap& inputs) {
  constexpr int64_t kFew = 4;
  std::string batch;
  for (const ir::ValueId v : graph.inputs()) {
    const auto& shape = graph.value(v).type.shape;
    if (!shape || shape->empty() || (*shape)[0].symbol().empty()) return;
    if (!std::exchange(batch, (*shape)[0].symbol()).empty() && batch != (*shape)[0].symbol()) return;
  }
  for (auto& [name, t] : inputs) {
    if (t.rank() == 0 || t.shape()[0] <= kFew || quant::BitsOf(t.dtype()) < 8) continue;
    ir::Shape shape = t.shape();
    shape[0] = kFew;
    t = ir::Tensor::View(t.dtype(), std::move(shape), t.buffer(), static_cast<size_t>(t.data() - t.buffer()->data()));
  }
}

}  // namespace

std::vector<LayerDifference> LayersOn(ir::Graph a, ir::Graph b, ir::TensorMap inputs,
                                      const runtime::CompileOptions& how) {
  const auto caches_a = passes::quantize::CodedCaches(a), caches_b = passes::quantize::CodedCaches(b);
  CutToFewRows(a, inputs);
  LayerPairs layers(a, b);
  const auto outputs = [&](ir::Graph graph, const auto& caches) -> ir::Result<ir::TensorMap> {
    OCTAVO_TRY(const runtime::Model model, runtime::Model::Compile(std::move(graph), how));
    return NamedOutputs(model, caches, inputs);
  };
  auto want = outputs(std::move(a), caches_a);
  if (!want) return {};
  auto got = outputs(std::move(b), caches_b);
  if (!got || !layers.Add(inputs, *want, *got)) return {};
  return layers.Differences();
}

ordered_json ToJson(const Comparison& comparison) {
  const auto number = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
  ordered_json json = {{"schema", 1}, {"batches", comparison.batches}, {"outputs", ordered_json::array()}};
  for (const auto& [name, s] : comparison.outputs) {
    json["outputs"].push_back({{"name", name},
                               {"elements", s.count()},
                               {"sqnr_db", number(s.SqnrDb())},
                               {"cosine", s.Cosine()},
                               {"mean_row_cosine", s.MeanRowCosine()},
                               {"max_abs", s.MaxAbs()},
                               {"mean_abs", s.MeanAbs()},
                               {"mismatches", s.mismatches()},
                               {"exact", s.exact()}});
  }
  for (const LayerDifference& d : comparison.layers) {
    json["layers"].push_back({{"node", d.node},
                              {"op", d.op},
                              {"elements", d.elements},
                              {"sqnr_db", number(d.sqnr_db)},
                              {"cosine", d.cosine},
                              {"fitted", d.fitted},
                              {"enters_db", number(d.enters_db)},
                              {"own_db", number(d.own_db)},
                              {"clipped", d.clipped},
                              {"flushed", d.flushed},
                              {"advice", AdviceFor(d)}});
  }
  return json;
}

}  // namespace octavo::api
