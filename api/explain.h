// What fuses without data, and what the rest misses by: what `octavo explain` and octavo.explain() call.
#ifndef OCTAVO_API_EXPLAIN_H_
#define OCTAVO_API_EXPLAIN_H_

#include <string>

#include "octavo/api/optimize.h"
#include "octavo/ir/json.h"

namespace octavo::api {

// Every pass that needs no data: what a float model fuses to, or what a quantized one does. registry: null for octavo's own passes.
ir::Result<Optimized> Explain(ir::Graph graph, const passes::Registry* registry = nullptr);

// Empty: all of them. node: part of a name.
struct Wanted {
  std::string rule, node;
  bool operator()(const passes::NearMiss& miss) const;
  bool operator()(const passes::Candidate& candidate) const;
};
// As cli/JSON.md says.
nlohmann::ordered_json ExplainJson(const Optimized& result, const Wanted& wanted);

}  // namespace octavo::api

#endif  // OCTAVO_API_EXPLAIN_H_
