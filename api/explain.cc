#include "octavo/api/explain.h"

#include <algorithm>

#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

using nlohmann::ordered_json;

ir::Result<Optimized> Explain(ir::Graph graph, const passes::Registry* registry) {
  OptimizeOptions options;
  options.registry = registry;
  options.recipe = passes::vendor::IsQuantized(graph) ? "quantized" : "float";
  return Optimize(std::move(graph), options);
}

bool Wanted::operator()(const passes::NearMiss& miss) const {
  return (rule.empty() || miss.rule == rule) && (node.empty() || miss.root.find(node) != std::string::npos);
}
bool Wanted::operator()(const passes::Candidate& candidate) const {
  return node.empty() ||
         std::ranges::any_of(candidate.nodes, [&](const std::string& n) { return n.find(node) != std::string::npos; });
}

ordered_json ExplainJson(const Optimized& result, const Wanted& wanted) {
  ordered_json json = {{"schema", 1}, {"candidates", ordered_json::array()}, {"near_misses", ordered_json::array()}};
  for (const passes::Candidate& c : result.report.candidates) {
    if (!wanted(c)) continue;
    json["candidates"].push_back(
        {{"kind", c.kind}, {"nodes", c.nodes}, {"status", c.status}, {"rule", c.rule}, {"reason", c.reason}});
    if (!c.place.empty()) json["candidates"].back()["place"] = c.place;
  }
  for (const passes::NearMiss& m : result.misses) {
    if (!wanted(m)) continue;
    json["near_misses"].push_back(
        {{"rule", m.rule}, {"root", m.root}, {"matched", m.matched}, {"kind", m.kind}, {"reason", m.reason}});
  }
  return json;
}

}  // namespace octavo::api
