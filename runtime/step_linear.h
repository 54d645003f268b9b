// Products of codes and what stands behind them as one step: gate and up, q, k and v.
#ifndef OCTAVO_RUNTIME_STEP_LINEAR_H_
#define OCTAVO_RUNTIME_STEP_LINEAR_H_

#include "octavo/runtime/compile.h"

namespace octavo::runtime {

// The QuantizedLinear or QuantizedQkv `id`, QuantizedLinears beside it that read the same codes, and what stands behind them (tail.h,
// heads_tail.h). No kernel: nothing does.
Made MakeLinearGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);

// The QuantizeTokens whose codes the step of `made` alone reads, that of a QuantizedLinear or QuantizedQkv of int8, is its beginning.
void TakeRowsToCode(ir::NodeId id, const CompileContext& c, Made& made);

// QuantizeTokens of input 0: codes, scales and zero points become outputs `first` to `first` + 2.
void QuantizeRows(kernels::Arch arch, StepCall& call, size_t first);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_LINEAR_H_
