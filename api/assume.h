#ifndef OCTAVO_API_ASSUME_H_
#define OCTAVO_API_ASSUME_H_

#include <string_view>

#include "octavo/ir/graph.h"

namespace octavo::api {

// Takes an input for a number that it always has, "use_cache_branch" and "true": it becomes a constant, and what depends on it can be computed before the
// run; an If on it becomes one of its branches. The model no longer has that input. An error where there is none of that name, or it has more than one element.
ir::Status Assume(ir::Graph& graph, std::string_view input, std::string_view value);

// What the graph is where an input that an If decides by has this value: the branch stands in place of the If, and inputs that the other branch
// alone read are gone. Exact, also after the branches have been optimized. An error where no If is decided so.
ir::Result<ir::Graph> BranchOf(ir::Graph graph, std::string_view input, std::string_view value);

}  // namespace octavo::api

#endif  // OCTAVO_API_ASSUME_H_
