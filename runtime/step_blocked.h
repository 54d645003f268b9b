// Products with weights in blocks that read the same activation (q, k and v; gate and up) as one step.
#ifndef OCTAVO_RUNTIME_STEP_BLOCKED_H_
#define OCTAVO_RUNTIME_STEP_BLOCKED_H_

#include "octavo/runtime/compile.h"

namespace octavo::runtime {

// `id` and the LinearBlocked that read what it reads in the same way, with an output for each, or for what stands behind them. No kernel:
// none serves `id`.
Made MakeBlockedGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_BLOCKED_H_
