// The codes of Q/DQ attention: those of its operands, and scores and probabilities that pass through codes of 8 bits on their way, or scores that
// are divided: what QuantizedSdpa has steps for (ir/functions.h).
#ifndef OCTAVO_PASSES_FUSIONS_SDPA_CODES_H_
#define OCTAVO_PASSES_FUSIONS_SDPA_CODES_H_

#include "octavo/passes/fusions/sdpa_parts.h"

namespace octavo::passes::fusions {

// Operands as codes and dequantized, the codes of P, and what a form of the rule has behind them.
struct SdpaOperands {
  pattern::Var q, kt, v, qd, kd, vd, pq, pd;
  pattern::Var values;     // the product of P and v
  pattern::Var sums;       // relative: the sum of the codes of each row
  pattern::Var quantized;  // the output's codes
};
// 8 bits per tensor, all integers or all fp8.
pattern::Verdict CheckOperandCodes(const pattern::Match& m, const SdpaOperands& o);
// P comes back by the numbers it went with, but for its scale. Relative: codes of exponentials, whole numbers from 0 on, are divided by their own sum.
pattern::Verdict CheckProbabilities(const pattern::Match& m, const SdpaMiddle& mid, const SdpaOperands& o);

// Codes that come back by another scale than they went with: the attribute `name` has it.
void SetStep(const pattern::Match& m, pattern::Var quantized, pattern::Var dequantized, const char* name,
             ir::Attrs* attrs);

// u8 or s8, per tensor, back by the same numbers but for the scale of products, in integer attention; hidden keys keep a negative score.
pattern::Verdict CheckScoreCodes(const pattern::Match& m, const SdpaMiddle& mid, bool fp8);

// The attributes and, behind the masks, the inputs that say so.
void AddScoreCodes(const pattern::Match& m, const SdpaMiddle& mid, ir::Attrs* attrs, std::vector<ValueId>* inputs);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_SDPA_CODES_H_
