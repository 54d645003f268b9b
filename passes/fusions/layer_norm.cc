// Before: d = x - ReduceMean(x);  y = d / Sqrt(ReduceMean(d * d or d^2) + eps) * gamma + beta
// After:  LayerNormalization(x, gamma, beta), axis -1
// Exporters of opset < 17 write the chain. The float result differs by rounding: a few ulp of the terms. Chains of 16 bits,
// which round after every op, are computed in f32 and rounded once.
// Refuses: another axis, f64, gamma or beta that is not a vector of the last dimension (one element, or a last dimension that may be 1, would
// widen the result).
#include <format>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

// Axes are input 1 (ops.def).
std::string MeanOfLast(const Graph& g, const Node& n) {
  const auto& shape = g.value(n.inputs[0]).type.shape;
  const ir::Tensor* axes = g.ConstantOf(n.input(1));
  if (axes == nullptr || axes->size() != 1) return "its axes are not one constant";
  const int64_t axis = axes->GetInt(0);
  const bool last = axis == -1 || (shape && axis == static_cast<int64_t>(shape->size()) - 1);
  if (!last) return "its axis " + std::to_string(axis) + " is not the last one";
  return n.attrs.Int("keepdims", 1) == 1 ? "" : "it drops the dimension";
}

Verdict CheckVectors(const Graph& g, ValueId x, std::initializer_list<ValueId> vectors, bool strict) {
  const auto& rows = g.value(x).type.shape;
  for (const ValueId v : vectors) {
    if (!v.valid()) continue;
    const auto& shape = g.value(v).type.shape;
    const bool vector =
        rows && !rows->empty() && shape && shape->size() == 1 && g.value(v).type.dtype == g.value(x).type.dtype;
    const bool fits = vector && ProvablyEqual(rows->back(), shape->back());
    const bool is_op = vector && !strict && shape->back().is_number() && shape->back().number() != 1;
    if (fits || is_op) continue;
    return Illegal(std::format("gamma or beta is no vector of the last dimension: '{}' is {}, x is {}", g.value(v).name,
                               ToString(g.value(v).type), ToString(g.value(x).type)));
  }
  return Ok();
}

Rule LayerNorm() {
  RuleBuilder r("layer_norm", "(x - mean) / sqrt(var + eps) * gamma + beta -> LayerNormalization");
  // The op has its epsilon in f32, which is not what an f64 chain adds.
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32, ir::DType::kF16, ir::DType::kBF16}});
  const Var mean = r.Op("mean", Op::kReduceMean, {x, Anything()}, MeanOfLast);
  const Var d = r.Op("centered", Op::kSub, {x, mean});
  const Var square =
      r.OneOf("square", {r.Op("pow", Op::kPow, {d, r.Scalar("two", 2.0)}), r.Op("dd", Op::kMul, {d, d})});
  const Var var = r.Op("variance", Op::kReduceMean, {square, Anything()}, MeanOfLast);
  const Var eps = r.Scalar("epsilon");
  const Var root = r.Op("deviation", Op::kSqrt, {r.AnyOrder("stable", Op::kAdd, var, eps)});
  const Var normal = r.Op("normalized", Op::kDiv, {d, root});
  const Var gamma = r.Input("gamma");
  const Var beta = r.Input("beta");
  const Var scaled = r.AnyOrder("scaled", Op::kMul, normal, gamma);
  r.Root(r.AnyOrder("shifted", Op::kAdd, scaled, beta));
  r.Guard([=](const Match& m) { return CheckVectors(m.graph(), m[x], {m[gamma], m[beta]}, true); });
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kLayerNormalization, {m[x], m[gamma], m[beta]},
                    {{"axis", int64_t{-1}}, {"epsilon", m.scalar(eps)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
