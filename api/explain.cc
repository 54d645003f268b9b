#include "octavo/api/explain.h"

#include <algorithm>
#include <format>
#include <set>

#include "octavo/ir/names.h"
#include "octavo/passes/registry.h"
#include "octavo/passes/sources.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

using nlohmann::ordered_json;

bool Wanted::operator()(const passes::NearMiss& miss) const {
  return (rule.empty() || miss.rule == rule) && (node.empty() || miss.root.find(node) != std::string::npos);
}
bool Wanted::operator()(const passes::Candidate& candidate) const {
  return node.empty() ||
         std::ranges::any_of(candidate.nodes, [&](const std::string& n) { return n.find(node) != std::string::npos; });
}

ir::Result<std::string> PictureOf(const std::string& name, const passes::Registry& registry) {
  std::set<std::string> known;  // in the order of the alphabet
  for (const auto* r : registry.rules()) {
    known.insert(r->name);
    if (r->name == name) return Picture(*r);
  }
  if (const passes::Pass* pass = registry.Find(name)) return std::format("{}  {}\n", name, pass->info().what);
  for (const auto& pass : registry.passes()) known.insert(pass->info().name);
  std::string names;
  for (const std::string& one : known) names += (names.empty() ? "" : ", ") + one;
  return ir::Fail("there is no rule {}: {}", ir::Quoted(name), names);
}

ir::Result<Optimized> Explain(ir::Graph graph, const Wanted& wanted, const passes::Registry* registry) {
  if (!wanted.rule.empty())
    OCTAVO_TRY_STATUS(
        PictureOf(wanted.rule, registry != nullptr ? *registry : passes::Registry::Own()).transform([](const auto&) {
        }));
  passes::TellSourcesApart(graph);
  const auto is_named = [&](ir::NodeId id) { return OriginName(graph.node(id)).contains(wanted.node); };
  const bool is_there = wanted.node.empty() || std::ranges::any_of(graph.NodesInOrder(), is_named);
  OptimizeOptions options;
  options.registry = registry;
  options.recipe = passes::vendor::IsQuantized(graph) ? "quantized" : "float";
  OCTAVO_TRY(Optimized result, Optimize(std::move(graph), options));
  if (!is_there && std::ranges::none_of(result.report.candidates, wanted) &&
      std::ranges::none_of(result.misses, wanted))
    return ir::Fail("no node of the model has {} in its name; print(octavo.Graph(model)) lists them",
                    ir::Quoted(wanted.node));
  return result;
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
