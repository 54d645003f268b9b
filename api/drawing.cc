#include "octavo/api/drawing.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "octavo/ir/json.h"
#include "octavo/ir/names.h"
#include "octavo/passes/sources.h"

namespace octavo::api {

namespace {

Drawing::Look LookOf(const ir::Node& n) {
  constexpr std::array kQuantized = {ir::Op::kQuantizedLinear, ir::Op::kLinearBlocked};
  constexpr std::array kCodes = {ir::Op::kQuantizeLinear, ir::Op::kDequantizeLinear, ir::Op::kDynamicQuantizeLinear,
                                 ir::Op::kQuantizeTokens};
  if (std::ranges::contains(kQuantized, n.op)) return Drawing::Look::kQuantized;
  if (std::ranges::contains(kCodes, n.op)) return Drawing::Look::kCodes;
  return ir::InfoOf(n.op).domain == "octavo" ? Drawing::Look::kFused : Drawing::Look::kFloat;
}

std::string Short(std::string_view name) { return ir::Clean(name, 200); }

// Those of the file, once each.
std::vector<std::string> OriginsOf(const ir::Node& n) {
  std::vector<std::string> names;
  for (const std::string& origin : n.origin) {
    if (origin.starts_with("pass:")) continue;
    std::string name = Short(passes::GivenName(origin));
    if (!std::ranges::contains(names, name)) names.push_back(std::move(name));
  }
  return names;
}

class Texts {
 public:
  int Of(const std::string& text) {
    const auto [it, fresh] = index_.try_emplace(text, static_cast<int>(texts_.size()));
    if (fresh) texts_.push_back(text);
    return it->second;
  }
  const nlohmann::ordered_json& all() const { return texts_; }

 private:
  std::unordered_map<std::string, int> index_;
  nlohmann::ordered_json texts_ = nlohmann::ordered_json::array();
};

}  // namespace

Drawing Draw(const ir::Graph& graph) {
  Drawing d;
  const std::vector<ir::NodeId> order = graph.NodesInOrder();
  d.count = static_cast<size_t>(
      std::ranges::count_if(order, [&](ir::NodeId id) { return graph.node(id).op != ir::Op::kConstant; }));
  if (d.count + graph.inputs().size() + graph.outputs().size() > Drawing::kMost) return d;
  std::unordered_map<uint32_t, uint32_t> at;  // value -> drawn node
  const auto read = [&](Drawing::Node& n, ir::ValueId v) {
    const auto it = v.valid() ? at.find(v.index) : at.end();
    if (it != at.end() && !std::ranges::contains(n.reads, it->second)) n.reads.push_back(it->second);
  };
  for (const ir::ValueId v : graph.inputs()) {
    at[v.index] = static_cast<uint32_t>(d.nodes.size());
    d.nodes.push_back({.op = "input",
                       .name = Short(graph.value(v).name),
                       .type = ir::ToString(graph.value(v).type),
                       .reads = {},
                       .origin = {},
                       .look = Drawing::Look::kEnd});
  }
  for (const ir::NodeId id : order) {
    const ir::Node& n = graph.node(id);
    if (n.op == ir::Op::kConstant) continue;
    Drawing::Node drawn{.op = n.op == ir::Op::kOpaque ? Short(n.op_type) : std::string(ir::InfoOf(n.op).name),
                        .name = Short(passes::GivenName(ir::OriginName(n))),
                        .type = {},
                        .reads = {},
                        .origin = OriginsOf(n),
                        .look = LookOf(n)};
    for (const ir::ValueId v : n.inputs) read(drawn, v);
    for (const ir::ValueId v : n.outputs) {
      if (!v.valid()) continue;
      at[v.index] = static_cast<uint32_t>(d.nodes.size());
      if (drawn.type.empty()) drawn.type = Short(ir::ToString(graph.value(v).type));
    }
    d.nodes.push_back(std::move(drawn));
  }
  for (const ir::GraphOutput& output : graph.outputs()) {
    Drawing::Node drawn{
        .op = "output", .name = Short(output.name), .type = {}, .reads = {}, .origin = {}, .look = Drawing::Look::kEnd};
    if (output.value.valid()) drawn.type = Short(ir::ToString(graph.value(output.value).type));
    read(drawn, output.value);
    d.nodes.push_back(std::move(drawn));
  }
  return d;
}

std::string DrawingsJson(const Drawing& before, const Drawing& after) {
  constexpr std::array kLooks = {"float", "quantized", "fused", "codes", "end"};
  Texts texts;
  std::unordered_map<std::string_view, size_t> source;
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    if (before.nodes[i].look != Drawing::Look::kEnd) source.try_emplace(before.nodes[i].name, i);
  }
  const auto drawn = [&](const Drawing& d, bool origins) {
    auto nodes = nlohmann::ordered_json::array();
    for (const Drawing::Node& n : d.nodes) {
      auto from = nlohmann::ordered_json::array();
      for (const std::string& name : n.origin) {
        const auto it = origins ? source.find(name) : source.end();
        if (it != source.end()) from.push_back(it->second);
      }
      nodes.push_back({texts.Of(n.op), texts.Of(n.name), texts.Of(n.type), n.reads, kLooks[static_cast<size_t>(n.look)],
                       std::move(from)});
    }
    return nodes;
  };
  nlohmann::ordered_json json;
  json["before"] = drawn(before, false);
  json["after"] = drawn(after, true);
  json["texts"] = texts.all();
  return ir::Dump(json);
}

}  // namespace octavo::api
