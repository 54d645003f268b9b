// What rules ask of quantization to codes of 8 bits.
#ifndef OCTAVO_PASSES_FUSIONS_CODES_H_
#define OCTAVO_PASSES_FUSIONS_CODES_H_

#include "octavo/passes/fusions/fusions.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::fusions {

// QuantizeLinear to fp8 saturates, as the kernels do; integers always do.
inline pattern::Verdict CheckSaturates(const pattern::Match& m, pattern::Var quantize) {
  if (m.at(quantize).attrs.Int("saturate", 1) != 0) return pattern::Ok();
  return pattern::Illegal("QuantizeLinear has saturate = 0, and the kernels saturate");
}

// The output of a product: codes of integers or of fp8, whatever the operands are.
inline pattern::Verdict CheckOutputCodes(const pattern::Match& m, pattern::Var quantize) {
  if (!quant::IsCode8(m.graph().value(m[quantize]).type.dtype)) {
    return pattern::Illegal("the output is not quantized to 8 bits");
  }
  return CheckSaturates(m, quantize);
}

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_CODES_H_
