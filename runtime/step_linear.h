// Products of codes and what stands behind them as one step: gate and up, q, k and v.
#ifndef OCTAVO_RUNTIME_STEP_LINEAR_H_
#define OCTAVO_RUNTIME_STEP_LINEAR_H_

#include <optional>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/runtime/compile.h"

namespace octavo::runtime {

// The QuantizedLinear or QuantizedQkv `id`, QuantizedLinears beside it that read the same codes, and what stands behind them (tail.h,
// heads_tail.h). No kernel: nothing does.
Made MakeLinearGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);

// What makes weights of a QuantizedLinear of 4 bits: constants, or none where w has 8.
struct StepsOfWeight {
  const Tensor *step = nullptr, *zero = nullptr;  // zero: may be absent beside a step
  kernels::WeightSource Of(const Tensor& w) const;
};
// None where w is neither of 8 bits without steps nor of 4 with steps that belong to it.
std::optional<StepsOfWeight> StepsOf(const Node& linear, const CompileContext& c, const Tensor& w);

// The QuantizeTokens whose codes the step of `made` alone reads, that of a QuantizedLinear or QuantizedQkv of int8, is its beginning.
void TakeRowsToCode(ir::NodeId id, const CompileContext& c, Made& made);

// QuantizeTokens of input 0: codes, scales and zero points become outputs `first` to `first` + 2.
void QuantizeRows(kernels::Arch arch, StepCall& call, size_t first);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_LINEAR_H_
