// What QuantizedLinear asks of the product that it stands for.
#ifndef OCTAVO_PASSES_FUSIONS_LINEAR_OPERANDS_H_
#define OCTAVO_PASSES_FUSIONS_LINEAR_OPERANDS_H_

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

// x and w as codes and dequantized; what stands behind the product where the rule has it and the graph too.
struct LinearParts {
  pattern::Var x, w, xd, wd, product, bias, post_scale, quantized;
};
pattern::Verdict CheckLinear(const pattern::Match& m, const LinearParts& parts);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_LINEAR_OPERANDS_H_
