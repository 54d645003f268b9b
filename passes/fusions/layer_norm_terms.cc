// Before: f = 1 / Sqrt(ReduceMean((x - ReduceMean(x))^2) + eps) * gamma;  y = x * f + (beta - ReduceMean(x) * f)
// After:  LayerNormalization(x, gamma, beta), axis -1
// TensorFlow and Keras write a norm as these two terms (Keras: beta + -mean * f, and no beta where it is 0). The float result differs by rounding: a few ulp of the terms, which
// may be larger than their sum.
// Refuses: another axis, gamma or beta that is no constant vector of the last dimension (dims of 1 may stand in front of it).
#include <format>

#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

// A constant vector of the last dimension, with dims of 1 in front that x has, too.
Verdict IsVector(const Graph& g, ValueId x, ValueId v) {
  const auto& rows = g.value(x).type.shape;
  const ir::Tensor* t = g.ConstantOf(v);
  const bool fits = t != nullptr && rows && !rows->empty() && t->rank() >= 1 &&
                    t->rank() <= static_cast<int64_t>(rows->size()) && t->dtype() == ir::DType::kF32 &&
                    t->size() == t->shape().back() && ProvablyEqual(rows->back(), ir::Dim(t->shape().back()));
  if (fits) return Ok();
  return Illegal(std::format("gamma or beta is no constant vector of the last dimension: '{}' is {}, x is {}",
                             g.value(v).name, ToString(g.value(v).type), ToString(g.value(x).type)));
}

ValueId Flat(Rewriter& b, ValueId v) {
  const ir::Tensor* t = b.graph().ConstantOf(v);
  return t->rank() == 1 ? v : b.Constant(t->Reshaped({t->size()}), b.graph().value(v).name);
}

}  // namespace

Rule LayerNormTerms(bool has_beta) {
  RuleBuilder r("layer_norm_terms", has_beta
                                        ? "x * f + (beta - mean * f), f = gamma / sqrt(var + eps) -> LayerNormalization"
                                        : "x * f - mean * f, f = gamma / sqrt(var + eps) -> LayerNormalization");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var mean = r.Op("mean", Op::kReduceMean, {x, Anything()}, MeanOfLast);
  const Var d = r.Op("centered", Op::kSub, {x, mean});
  const auto [eps, root] = RootOf(r, MeanOfSquare(r, d));
  const Var gamma = r.Input("gamma"), beta = has_beta ? r.Input("beta") : gamma;
  const Var factor = r.AnyOrder("factor", Op::kMul, InverseOf(r, root), gamma);
  const Var moved = r.AnyOrder("moved", Op::kMul, mean, factor);
  const Var back = r.AnyOrder("back", Op::kMul, r.Op("minus_mean", Op::kNeg, {mean}), factor);
  const Var offset =
      has_beta ? r.OneOf("offset", {r.Op("less", Op::kSub, {beta, moved}), r.AnyOrder("more", Op::kAdd, back, beta)})
               : r.OneOf("offset", {r.Op("minus", Op::kNeg, {moved}), back});
  r.Root(r.AnyOrder("shifted", Op::kAdd, r.AnyOrder("scaled", Op::kMul, x, factor), offset));
  r.Guard([=](const Match& m) {
    const Verdict of_gamma = IsVector(m.graph(), m[x], m[gamma]);
    return of_gamma.ok() ? IsVector(m.graph(), m[x], m[beta]) : of_gamma;
  });
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kLayerNormalization, {m[x], Flat(b, m[gamma]), has_beta ? Flat(b, m[beta]) : ValueId{}},
                    {{"axis", int64_t{-1}}, {"epsilon", m.scalar(eps)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
