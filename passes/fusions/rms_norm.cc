// Before: x * (1 / Sqrt(ReduceMean(x^2) + eps)) * gamma, or x / Sqrt(..) * gamma, or x * Pow(.., -0.5) * gamma (Gemma 3n and 4); gamma may meet x or the inverse first; or without gamma (queries and keys of nanochat)
// After:  RMSNormalization(x, gamma), axis -1; gamma is all ones where there is none
// Exporters write the chain: before opset 23 there is no op. The float result differs by rounding: a few ulp.
// Refuses: another axis, gamma that is not a vector of the last dimension, no gamma where nobody knows how many ones there are.
#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule RmsNorm(bool has_gamma) {
  RuleBuilder r("rms_norm", has_gamma ? "x / sqrt(mean(x^2) + eps) * gamma -> RMSNormalization"
                                      : "x / sqrt(mean(x^2) + eps) -> RMSNormalization");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const StableRoot root = RootOf(r, MeanOfSquare(r, x));
  const Var gamma = has_gamma ? r.Input("gamma") : Var();
  r.Root(Normalized(r, x, root, gamma));
  r.Guard([=](const Match& m) {
    return has_gamma ? CheckVectors(m.graph(), m[x], {m[gamma]}, true) : CheckCounted(m.graph(), m[x]);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kRMSNormalization, {m[x], has_gamma ? FlatVector(b, m[gamma]) : Ones(b, m[x])},
                    {{"axis", int64_t{-1}}, {"epsilon", m.scalar(root.epsilon)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
