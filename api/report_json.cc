#include "octavo/api/report_json.h"

#include <cmath>

#include "octavo/api/lost.h"
#include "octavo/ir/json.h"

namespace octavo::api {

using nlohmann::ordered_json;

namespace {

ordered_json LossJson(const quant::ErrorStats& s) {
  return {{"sqnr_db", std::isfinite(s.SqnrDb()) ? ordered_json(s.SqnrDb()) : ordered_json(nullptr)},
          {"cosine", s.Cosine()},
          {"exact", s.exact()}};
}

}  // namespace

std::string ReportJson(const Optimized& result, const FileSizes& bytes, const Measured* measured) {
  const passes::Report& r = result.report;
  ordered_json j;
  j["schema"] = 1;
  j["attention"] = {{"found", r.attention.found}, {"fused", r.attention.done}};
  j["qkv"] = {{"found", r.qkv.found}, {"fused", r.qkv.done}};
  j["linear"] = {{"found", r.linear.found}, {"quantized", r.linear.done}};
  j["candidates"] = ordered_json::array();
  for (const passes::Candidate& c : r.candidates) {
    j["candidates"].push_back(
        {{"kind", c.kind}, {"nodes", c.nodes}, {"status", c.status}, {"rule", c.rule}, {"reason", c.reason}});
    if (!c.place.empty()) j["candidates"].back()["place"] = c.place;
  }
  j["in_float"] = ordered_json::array();
  for (const passes::FloatWeights& f : r.in_float) {
    j["in_float"].push_back({{"op", f.op}, {"weights", f.weights}, {"bytes", f.bytes}});
  }
  j["bytes"] = {{"before", bytes.before}, {"after", bytes.after}};
  j["time_s"] = result.seconds;
  j["pipeline"] = result.pipeline.passes;
  j["keep_float"] = result.pipeline.keep_float;
  j["dynamic"] = result.pipeline.dynamic;
  j["passes"] = ordered_json::array();
  for (const passes::PassTiming& t : result.timings) {
    j["passes"].push_back({{"pass", t.pass}, {"changed", t.changed}, {"ms", t.milliseconds}});
  }
  j["ranges"] = ordered_json::array();
  for (const ActivationRange& a : result.ranges) {
    j["ranges"].push_back({{"value", a.value},
                           {"seen", {a.seen.lo, a.seen.hi}},
                           {"chosen", {a.chosen.lo, a.chosen.hi}},
                           {"scale", a.params.scale},
                           {"zero_point", a.params.zero_point}});
  }
  j["losses"] = ordered_json::array();
  const auto number = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
  for (const auto& [name, s] : result.losses) {
    ordered_json loss = LossJson(s);
    loss["output"] = name;
    loss["sqnr_error"] = s.SqnrError();
    loss["row_cosine"] = s.MeanRowCosine(), loss["row_cosine_error"] = s.RowCosineError();
    const auto [low, high] = Spread(result.loss_details, name);
    loss["lowest_db"] = number(low), loss["highest_db"] = number(high);
    if (const auto it = result.loss_details.rows.find(name); it != result.loss_details.rows.end()) {
      loss["kind"] = quant::NameOf(it->second.kind()), loss["top1"] = it->second.Top1();
      loss["kl"] = it->second.MeanKl(), loss["kl_error"] = it->second.KlError();
    } else {
      loss["kind"] = quant::NameOf(quant::RowKind::kVector);
    }
    j["losses"].push_back(std::move(loss));
  }
  j["losses_of"] = {{"samples", result.loss_details.samples}, {"held_out", result.loss_details.held_out}};
  if (const Lost most = MostLost(result); !most.output.empty()) j["losses_of"]["output"] = most.output;
  j["layers"] = ordered_json::array();
  for (const LayerLoss& layer : result.layers) {
    ordered_json loss = LossJson(layer.stats);
    loss["node"] = layer.node;
    loss["kind"] = layer.kind;
    loss["output"] = layer.output;
    loss["row_cosine"] = layer.stats.MeanRowCosine();
    if (layer.kl) loss["kl"] = *layer.kl;
    loss["share"] = layer.share;
    if (!layer.type.empty()) loss["type"] = layer.type;
    j["layers"].push_back(std::move(loss));
  }
  j["notes"] = result.notes;
  j["data"] = {{"what", result.data}, {"random", result.random_data}};
  if (measured != nullptr) j["measured"] = ToJson(*measured);
  return ir::Dump(j, 1) + "\n";
}

int64_t BytesOfModel(const ir::Graph& graph, int64_t file_bytes) {
  int64_t total = file_bytes;
  for (ir::NodeId id : graph.NodesInOrder()) {
    const ir::Node& n = graph.node(id);
    if (n.op != ir::Op::kConstant) continue;
    const ir::Tensor* t = graph.ConstantOf(n.output());
    if (t != nullptr && t->buffer() != nullptr && !t->buffer()->file().empty())
      total += static_cast<int64_t>(t->byte_size());
  }
  return total;
}

}  // namespace octavo::api
