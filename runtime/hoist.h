// Where positions, angles and lengths are computed: exporters write some of them behind the products whose steps want them (heads_tail.h).
#ifndef OCTAVO_RUNTIME_HOIST_H_
#define OCTAVO_RUNTIME_HOIST_H_

#include "octavo/runtime/step.h"

namespace octavo::runtime {

// Moves in front of the first product what rotary embeddings and appends to caches read beside their rows, where no product is needed for
// it. `c` is of `graph`.
void HoistOperandsOfHeads(const CompileContext& c, Graph& graph);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_HOIST_H_
