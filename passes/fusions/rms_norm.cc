// Before: x * (1 / Sqrt(ReduceMean(x^2) + eps)) * gamma, or x / Sqrt(..) * gamma
// After:  RMSNormalization(x, gamma), axis -1
// Exporters write the chain: before opset 23 there is no op. The float result differs by rounding: a few ulp.
// Refuses: another axis, gamma that is not a vector of the last dimension.
#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule RmsNorm() {
  RuleBuilder r("rms_norm", "x / sqrt(mean(x^2) + eps) * gamma -> RMSNormalization");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const auto [eps, root] = RootOf(r, MeanOfSquare(r, x));
  const Var normal =
      r.OneOf("normalized", {r.AnyOrder("times", Op::kMul, x, InverseOf(r, root)), r.Op("over", Op::kDiv, {x, root})});
  const Var gamma = r.Input("gamma");
  r.Root(r.AnyOrder("scaled", Op::kMul, normal, gamma));
  r.Guard([=](const Match& m) { return CheckVectors(m.graph(), m[x], {m[gamma]}, true); });
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kRMSNormalization, {m[x], FlatVector(b, m[gamma])},
                    {{"axis", int64_t{-1}}, {"epsilon", m.scalar(eps)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
