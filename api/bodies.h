// Branches of If and bodies of Loop and Scan are optimized as models of their own, before the graph around them. For api/ alone.
#ifndef OCTAVO_API_BODIES_H_
#define OCTAVO_API_BODIES_H_

#include <functional>
#include <string>
#include <vector>

#include "octavo/api/optimize.h"

namespace octavo::api {

struct OptimizedBody {
  std::string place;  // "then_branch of If 'choose'"
  Optimized result;   // without its graphs
};
using OptimizeFn = std::function<ir::Result<Optimized>(ir::Graph graph, const OptimizeOptions& options)>;

// Replaces what is in the nodes of `graph`, which has been folded then, where the pipeline does that. A branch is
// calibrated on what it gets when the data runs through the model. Where there is none (a Loop, a branch that no batch takes, a .calib file), a recipe
// that needs ranges gives way to `dynamic`, with a note. `optimize` is called for each.
ir::Result<std::vector<OptimizedBody>> OptimizeBodies(ir::Graph& graph, const OptimizeOptions& options,
                                                      const OptimizeFn& optimize);

// The options without those names that are of nodes within alone.
OptimizeOptions WithoutNamesWithin(const ir::Graph& graph, OptimizeOptions options);

// Makes one report of all.
void Join(std::vector<OptimizedBody> bodies, Optimized& result);

}  // namespace octavo::api

#endif  // OCTAVO_API_BODIES_H_
