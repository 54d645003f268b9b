// Internal to ir/infer*.cc: arithmetic on the elements of small integer tensors.
#ifndef OCTAVO_IR_INFER_ARITHMETIC_H_
#define OCTAVO_IR_INFER_ARITHMETIC_H_

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

// Whole numbers below this are exact in float32 (2^24), so that a size survives a Cast to float and back.
constexpr double kWholeFloats = 16777216.0;

// Integer ops, reductions, comparisons and casts; nothing where the op is no arithmetic.
void InferArithmetic(Inferrer& c);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_INFER_ARITHMETIC_H_
