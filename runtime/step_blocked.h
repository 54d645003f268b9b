// Products with weights in blocks that read the same activation (q, k and v; gate and up) as one step.
#ifndef OCTAVO_RUNTIME_STEP_BLOCKED_H_
#define OCTAVO_RUNTIME_STEP_BLOCKED_H_

#include <span>
#include <vector>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

// The LinearBlocked that read what `id` reads in the same way, in the graph's order, `id` among them; of another op `id` alone.
std::vector<ir::NodeId> BlockedBeside(const Graph& g, ir::NodeId id);

// With an output for each node. Null where no kernel serves one of them.
KernelPtr MakeBlockedGroup(std::span<const ir::NodeId> nodes, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_BLOCKED_H_
