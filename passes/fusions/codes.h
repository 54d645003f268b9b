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

// What the output of a product of x may be: integers of 8 bits, and fp8 where x is fp8.
inline pattern::Verdict CheckOutputCodes(quant::DType x, quant::DType y) {
  if (quant::IsInt8(y) || (quant::IsFp8(x) && quant::IsFp8(y))) return pattern::Ok();
  if (quant::IsFp8(y)) return pattern::NoKernel("no kernel makes fp8 from a product of integers");
  return pattern::Illegal("the output is not quantized to 8 bits");
}

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_CODES_H_
