// Products of codes that what stands behind them reads together (gate and up) as one step.
#ifndef OCTAVO_RUNTIME_STEP_LINEAR_H_
#define OCTAVO_RUNTIME_STEP_LINEAR_H_

#include "octavo/runtime/compile.h"

namespace octavo::runtime {

// The QuantizedLinear `id`, those beside it that read the same codes, and the element-wise nodes behind them. No kernel: there are none.
Made MakeLinearGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_LINEAR_H_
