// Before: y = Add(QuantizedLinear(x, w, ..), residual) [QuantizeLinear]
// After:  y = QuantizedLinear(x, w, .., y_scale, y_zp, post_scale, residual)
// Exact: the body of QuantizedLinear adds it where the Add stood. Norms have taken their sums before: what is left stands before
// another Add (attention and MLP side by side) or at the end.
// Refuses: another shape (broadcasting stays outside), a constant, integer operands with an fp8 output.
#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

Verdict Check(const Match& m, Var linear, Var residual) {
  const Graph& g = m.graph();
  const Node& n = m.at(linear);
  if (n.input(6) || n.input(9)) return Illegal("the Linear's output is quantized already, or has a residual");
  if (g.ConstantOf(m[residual]) != nullptr) return NotWorth("what is added is a constant");
  if (!SameShape(g, m[linear], m[residual]))
    return Illegal("the residual is not known to have the shape of the output");
  return Ok();
}

Verdict CheckOutput(const Match& m, Var q) {
  Verdict scalar = CheckScalarParams(m, q, "the output");
  return scalar.ok() ? CheckOutputCodes(m, q) : scalar;
}

}  // namespace

Rule LinearResidual(bool quantized_output) {
  RuleBuilder r(quantized_output ? "quantized_linear_residual_out" : "quantized_linear_residual",
                "QuantizedLinear + residual [Q] -> QuantizedLinear");
  const Var residual = r.Input("residual", {.dtypes = {DType::kF32}});
  const Var linear = r.Open(r.Op("linear", Op::kQuantizedLinear, {}));
  const Var sum = r.AnyOrder("sum", Op::kAdd, linear, residual);
  const Var q = quantized_output ? r.Open(r.Op("quantized", Op::kQuantizeLinear, {sum})) : Var();
  r.Root(quantized_output ? q : sum);
  r.Guard([=](const Match& m) {
    if (Verdict v = Check(m, linear, residual); !v.ok()) return v;
    return quantized_output ? CheckOutput(m, q) : Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node& n = m.at(linear);
    std::vector<ValueId> in = n.inputs;
    in.resize(std::max<size_t>(in.size(), 10));
    if (quantized_output) in[6] = m.at(q).input(1), in[7] = m.at(q).input(2);
    in[9] = m[residual];
    return b.Create(Op::kQuantizedLinear, std::move(in), n.attrs);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
