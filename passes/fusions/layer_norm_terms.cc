// Before: f = 1 / Sqrt(ReduceMean((x - ReduceMean(x))^2) + eps) * gamma;  y = x * f + (beta - ReduceMean(x) * f)
// After:  LayerNormalization(x, gamma, beta), axis -1
// TensorFlow and Keras write a norm as these two terms (Keras: beta + -mean * f, and no beta where it is 0). The float result differs by rounding: a few ulp of the terms, which
// may be larger than their sum.
// Refuses: another axis, gamma or beta that is no vector of the last dimension (dims of 1 may stand in front of a constant).
#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule LayerNormTerms(bool has_beta) {
  RuleBuilder r("layer_norm_terms", has_beta
                                        ? "x * f + (beta - mean * f), f = gamma / sqrt(var + eps) -> LayerNormalization"
                                        : "x * f - mean * f, f = gamma / sqrt(var + eps) -> LayerNormalization");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var mean = r.Op("mean", Op::kReduceMean, {x, Anything()}, MeanOfLast);
  const Var d = r.Op("centered", Op::kSub, {x, mean});
  const auto [eps, root, inverse] = RootOf(r, MeanOfSquare(r, d));
  const Var gamma = r.Input("gamma"), beta = has_beta ? r.Input("beta") : gamma;
  const Var factor = r.AnyOrder("factor", Op::kMul, inverse, gamma);
  const Var moved = r.AnyOrder("moved", Op::kMul, mean, factor);
  const Var back = r.AnyOrder("back", Op::kMul, r.Op("minus_mean", Op::kNeg, {mean}), factor);
  const Var offset =
      has_beta ? r.OneOf("offset", {r.Op("less", Op::kSub, {beta, moved}), r.AnyOrder("more", Op::kAdd, back, beta)})
               : r.OneOf("offset", {r.Op("minus", Op::kNeg, {moved}), back});
  r.Root(r.AnyOrder("shifted", Op::kAdd, r.AnyOrder("scaled", Op::kMul, x, factor), offset));
  r.Guard([=](const Match& m) { return CheckVectors(m.graph(), m[x], {m[gamma], m[beta]}, true); });
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kLayerNormalization,
                    {m[x], FlatVector(b, m[gamma]), has_beta ? FlatVector(b, m[beta]) : ValueId{}},
                    {{"axis", int64_t{-1}}, {"epsilon", m.scalar(eps)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
