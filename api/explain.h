// What fuses without data, and what the rest misses by: what `octavo explain` and octavo.explain() call.
#ifndef OCTAVO_API_EXPLAIN_H_
#define OCTAVO_API_EXPLAIN_H_

#include <string>

#include "octavo/api/optimize.h"
#include "octavo/ir/json.h"

namespace octavo::api {

// Empty: all of them. node: part of a name.
struct Wanted {
  std::string rule, node;
  bool operator()(const passes::NearMiss& miss) const;
  bool operator()(const passes::Candidate& candidate) const;
};
// Every pass that needs no data: what a float model fuses to, or what a quantized one does. registry: null for octavo's own passes. An error where
// there is no such rule or pass, or no node of such a name.
ir::Result<Optimized> Explain(ir::Graph graph, const Wanted& wanted, const passes::Registry* registry = nullptr);
// What the name stands for: the picture of a rule, or the sentence of a pass that is more than rules. An error that names all there are.
ir::Result<std::string> PictureOf(const std::string& name, const passes::Registry& registry);
// As cli/JSON.md says.
nlohmann::ordered_json ExplainJson(const Optimized& result, const Wanted& wanted);

}  // namespace octavo::api

#endif  // OCTAVO_API_EXPLAIN_H_
