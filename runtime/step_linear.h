// Products of codes and what stands behind them as one step: gate and up, q, k and v.
#ifndef OCTAVO_RUNTIME_STEP_LINEAR_H_
#define OCTAVO_RUNTIME_STEP_LINEAR_H_

#include "octavo/runtime/compile.h"

namespace octavo::runtime {

// The QuantizedLinear or QuantizedQkv `id`, QuantizedLinears beside it that read the same codes, and what stands behind them (tail.h,
// heads_tail.h). No kernel: nothing does.
Made MakeLinearGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_LINEAR_H_
