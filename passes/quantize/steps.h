// Weights of 4 bits whose blocks have whole steps of one scale a column: products of bytes that add up over all of k.
//
//   w[i][c] = scale[c] * step[b][c] * (code[i][c] - zero[b][c]),  b = i / 16
//
// step * (code - zero) is -127 to 127 for any code, so that it is a weight of an int8 product.
#ifndef OCTAVO_PASSES_QUANTIZE_STEPS_H_
#define OCTAVO_PASSES_QUANTIZE_STEPS_H_

#include "octavo/ir/functions.h"
#include "octavo/passes/quantize/moments.h"

namespace octavo::passes::quantize {

struct Stepped {
  ir::Tensor codes, step, zero, scale;  // u4 [k,n], u4 [ceil(k / 16),n] twice, f32 [n]; steps are 1 to 15
  double error = 0;                     // as Blocked::error (rounding.h)
};
// fit: null where there is no data. w: values that WhyInFloat lets pass.
Result<Stepped> RoundInSteps(const ir::Tensor& w, const Compensation* fit, const ParallelFor& parallel);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_STEPS_H_
