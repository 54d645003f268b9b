// Before: d = x - ReduceMean(x);  y = d / Sqrt(ReduceMean(d * d or d^2) + eps) * gamma + beta
// Before: the variance as Max(ReduceMean(x^2) - ReduceMean(x)^2, 0) or without the Max (Flax); d * (1 / Sqrt(..)) (JAX)
// Before: gamma in front of the division, or times its inverse
// Before: the same without beta, or without both
// After:  LayerNormalization(x, gamma, beta), axis -1; gamma is all ones where there is none
// Exporters of opset < 17 write the chain. The float result differs by rounding: a few ulp of the terms. Chains of 16 bits,
// which round after every op, are computed in f32 and rounded once. A variance as a difference loses what both means share; the op does not.
// Refuses: another axis, f64, gamma or beta that is not a vector of the last dimension (dims of 1 in front may stand there; one element, or a last dimension that may be 1, would
// widen the result), no gamma where nobody knows how many ones there are.
#include <format>

#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule LayerNorm(bool has_gamma, bool has_beta) {
  RuleBuilder r("layer_norm", std::format("(x - mean) / sqrt(var + eps){}{} -> LayerNormalization",
                                          has_gamma ? " * gamma" : "", has_beta ? " + beta" : ""));
  // The op has its epsilon in f32, which is not what an f64 chain adds.
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32, ir::DType::kF16, ir::DType::kBF16}});
  const Var mean = r.Op("mean", Op::kReduceMean, {x, Anything()}, MeanOfLast);
  const Var d = r.Op("centered", Op::kSub, {x, mean});
  const Var squared = r.OneOf("squared_mean", {r.Op("mean_mean", Op::kMul, {mean, mean}),
                                               r.Op("mean_pow", Op::kPow, {mean, r.Scalar("mean_two", 2.0)})});
  const Var fast = r.Op("fast", Op::kSub, {MeanOfSquare(r, x), squared});
  const Var floor = r.AnyOrder("floor", Op::kMax, fast, r.Scalar("zero", 0.0));
  const StableRoot root = RootOf(r, r.OneOf("variance", {MeanOfSquare(r, d), floor, fast}));
  const Var gamma = has_gamma ? r.Input("gamma") : Var(), beta = has_beta ? r.Input("beta") : gamma;
  const Var scaled = Normalized(r, d, root, gamma);
  r.Root(has_beta ? r.AnyOrder("shifted", Op::kAdd, scaled, beta) : scaled);
  r.Guard([=](const Match& m) {
    return has_gamma ? CheckVectors(m.graph(), m[x], {m[gamma], m[beta]}, true) : CheckCounted(m.graph(), m[x]);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const ValueId by = has_gamma ? FlatVector(b, m[gamma]) : Ones(b, m[x]);
    return b.Create(Op::kLayerNormalization, {m[x], by, has_beta ? FlatVector(b, m[beta]) : ValueId{}},
                    {{"axis", int64_t{-1}}, {"epsilon", m.scalar(root.epsilon)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
