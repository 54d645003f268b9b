// Which inputs of a graph are KV caches that an output carries on (CachePort, model.h).
#ifndef OCTAVO_RUNTIME_CACHES_H_
#define OCTAVO_RUNTIME_CACHES_H_

#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {

std::vector<CachePort> FindCaches(const ir::Graph& graph);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CACHES_H_
