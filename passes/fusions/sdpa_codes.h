// Scores and probabilities of Q/DQ attention that pass through codes of 8 bits on their way, and scores that are divided: what
// SdpaInt8 has steps for (ir/functions.h).
#ifndef OCTAVO_PASSES_FUSIONS_SDPA_CODES_H_
#define OCTAVO_PASSES_FUSIONS_SDPA_CODES_H_

#include "octavo/passes/fusions/sdpa_common.h"

namespace octavo::passes::fusions {

// u8 or s8, per tensor, back by the same numbers, in integer attention; hidden keys keep a negative score.
pattern::Verdict CheckScoreCodes(const pattern::Match& m, const SdpaMiddle& mid, bool fp8);

// The attributes and, behind the masks, the inputs that say so.
void AddScoreCodes(const pattern::Match& m, const SdpaMiddle& mid, ir::Attrs* attrs, std::vector<ValueId>* inputs);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_SDPA_CODES_H_
