// What the float and the int8 attention rule share: the part between the two products, and the checks.
#ifndef OCTAVO_PASSES_FUSIONS_SDPA_COMMON_H_
#define OCTAVO_PASSES_FUSIONS_SDPA_COMMON_H_

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

struct SdpaMiddle {
  pattern::Var scale;  // scalar, absent: 1
  pattern::Var mask;   // additive, absent: none
  pattern::Var guard;  // Where(IsNaN(p), 0, p), absent: no guard
  pattern::Var p;      // the probabilities, after the guard
};

// Softmax(MatMul(q, kT) [* scale] [+ mask]), with or without the NaN guard.
SdpaMiddle MatchScoresToProbabilities(pattern::RuleBuilder& r, pattern::Var q, pattern::Var kt);

// Ranks 4, head count and head sizes are numbers, the mask is f32 of rank <= 4.
pattern::Verdict CheckHeads(const pattern::Match& m, pattern::Var q, pattern::Var kt, pattern::Var v,
                            const SdpaMiddle& mid);

ir::Attrs SdpaAttrs(const pattern::Match& m, pattern::Var q, pattern::Var kt, pattern::Var v, const SdpaMiddle& mid);

// k [B,H,S,D] for kT [B,H,D,S]: the Transpose that made it is undone, or one is added.
ValueId Untransposed(Rewriter& b, ValueId kt);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_SDPA_COMMON_H_
