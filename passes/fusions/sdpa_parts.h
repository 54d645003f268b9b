// What the float and the int8 attention rule share: the part between the two products (sdpa_scores.cc), the checks (sdpa_checks.cc) and what the
// new op takes (sdpa_build.cc).
#ifndef OCTAVO_PASSES_FUSIONS_SDPA_PARTS_H_
#define OCTAVO_PASSES_FUSIONS_SDPA_PARTS_H_

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

struct SdpaMiddle {
  pattern::Var scale;    // scalar, absent: 1
  pattern::Var divisor;  // scalar, absent: none; instead of a scale
  pattern::Var cap;      // scalar, absent: none; scores = tanh(scores / cap) * cap
  pattern::Var cap_again;
  pattern::Var mask;  // additive, absent: none
  pattern::Var keep;  // bool, absent: none; where false the score is `hidden`
  pattern::Var hide;  // its opposite, instead of it
  pattern::Var hidden;
  pattern::Var guard;  // Where(IsNaN(p), 0, p), absent: no guard
  // Where(IsInf(ReduceMax(s)), 0, p), -inf only: rows that are masked wholly. Instead of it.
  pattern::Var masked_guard, is_masked, guarded_top;
  pattern::Var top;  // relative: the ReduceMax of each row
  pattern::Var p;    // the probabilities, after the guard; relative: the exponentials
  // QuantizeLinear and DequantizeLinear behind the product, the scale, the mask, the guard and `kept`; absent: it stays in float.
  struct Codes {
    pattern::Var quantized, dequantized;
  };
  Codes codes[5];
};

// Softmax([cap * tanh(1/cap *] MatMul(q, kT) [* scale] [)] [+ mask]), with or without Where(keep, ., hidden) before the Softmax and
// the NaN guard behind it. Scores and probabilities may have other readers (models that return their attentions): the chain up to
// there stays for them, computed beside the fused op. In float that costs about what fusing gains, in int8 a quarter of it.
// relative: Exp(s - ReduceMax(s)) instead of the Softmax (relative_probs.cc).
// with_codes: scores and probabilities may be quantized and dequantized on the way, and scores divided: what int8 has steps for.
SdpaMiddle MatchScoresToProbabilities(pattern::RuleBuilder& r, pattern::Var q, pattern::Var kt, bool with_codes,
                                      bool relative = false);

// Of rank 4, or of rank 3, [N,S,D], where heads are part of the batch: one head for each of N. Null: neither.
const ir::SymShape* ShapeOfHeads(const pattern::Match& m, pattern::Var v);
ir::Dim HeadsOf(const ir::SymShape& s);

// A reduction over the last axis, which is kept.
bool ReducesRows(const Graph& g, const Node& n);

// Ranks 4 (or all 3: heads in the batch), head count and head sizes are numbers, K and V have as many heads as Q or one, the
// mask is f32 of at most that rank.
pattern::Verdict CheckHeads(const pattern::Match& m, pattern::Var q, pattern::Var kt, pattern::Var v,
                            const SdpaMiddle& mid);

// The mask inputs of the op at the end of `inputs`, as far as there: mask, keep.
void AddMasks(Rewriter& b, const pattern::Match& m, const SdpaMiddle& mid, size_t rank, std::vector<ValueId>* inputs);

ir::Attrs SdpaAttrs(const pattern::Match& m, pattern::Var q, pattern::Var kt, pattern::Var v, const SdpaMiddle& mid);

// A value of rank 3 with one head, [N,1,S,D], where `rank` is 3: an operand or a mask; and the result back.
ValueId Lifted(Rewriter& b, ValueId v, size_t rank);
ValueId Lowered(Rewriter& b, ValueId o, size_t rank);

// k [B,H,S,D] for kT [B,H,D,S]: the Transpose that made it is undone, or one is added.
ValueId Untransposed(Rewriter& b, ValueId kt);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_SDPA_PARTS_H_
