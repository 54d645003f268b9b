// Before: x * 0.5 * (1 + Erf(x / sqrt 2)) in any order of the products, or the tanh form
// After:  Gelu(x), approximate "none" or "tanh"
// Float results differ by rounding (order of products, a division, sqrt(2) and its like rounded to a neighbour): at most 3 ulp of |x|, the
// size of the result's terms; 4 in the tanh form.
// Refuses: other constants, 1.4142 for sqrt(2) among them, which alone would be 79 ulp.
#include <numbers>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

// x * (t + 1) * 0.5 in each association that exporters write.
Var HalfProduct(RuleBuilder& r, Var x, Var t) {
  const Var half = r.Scalar("half", 0.5);
  const Var one_plus = r.AnyOrder("one_plus", Op::kAdd, t, r.Scalar("one", 1.0));
  return r.OneOf("product", {r.AnyOrder("x_t_half", Op::kMul, r.AnyOrder("x_t", Op::kMul, x, one_plus), half),
                             r.AnyOrder("half_x_t", Op::kMul, r.AnyOrder("half_x", Op::kMul, x, half), one_plus),
                             r.AnyOrder("x_half_t", Op::kMul, x, r.AnyOrder("half_t", Op::kMul, one_plus, half))});
}

ValueId BuildGelu(Rewriter& b, ValueId x, const char* approximate) {
  return b.Create(Op::kGelu, {x}, {{"approximate", std::string(approximate)}});
}

}  // namespace

Rule GeluErf() {
  RuleBuilder r("gelu_erf", "x * 0.5 * (1 + erf(x / sqrt 2)) -> Gelu(x)");
  const Var x = r.Input("x");
  const Var erf = r.Op("erf", Op::kErf, {r.Op("divided", Op::kDiv, {x, r.Scalar("sqrt2", std::numbers::sqrt2)})});
  r.Root(HalfProduct(r, x, erf));
  r.Build([=](Rewriter& b, const Match& m) { return BuildGelu(b, m[x], "none"); });
  return r.Finish();
}

Rule GeluErfScaled() {
  RuleBuilder r("gelu_erf_scaled", "x * 0.5 * (1 + erf(x * 0.7071)) -> Gelu(x)");
  const Var x = r.Input("x");
  const Var factor = r.Scalar("rsqrt2", std::numbers::sqrt2 / 2);
  const Var erf = r.Op("erf", Op::kErf, {r.AnyOrder("scaled", Op::kMul, x, factor)});
  r.Root(HalfProduct(r, x, erf));
  r.Build([=](Rewriter& b, const Match& m) { return BuildGelu(b, m[x], "none"); });
  return r.Finish();
}

Rule GeluTanh() {
  RuleBuilder r("gelu_tanh", "x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) -> Gelu(x, tanh)");
  const Var x = r.Input("x");
  const Var cube = r.OneOf("cube", {r.Op("pow", Op::kPow, {x, r.Scalar("three", 3.0)}),
                                    r.AnyOrder("xxx", Op::kMul, r.Op("xx", Op::kMul, {x, x}), x)});
  const Var small = r.AnyOrder("small", Op::kMul, cube, r.Scalar("c", 0.044715));
  const Var sum = r.AnyOrder("sum", Op::kAdd, x, small);
  const Var factor = r.Scalar("sqrt2pi", std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  const Var tanh = r.Op("tanh", Op::kTanh, {r.AnyOrder("inner", Op::kMul, sum, factor)});
  r.Root(HalfProduct(r, x, tanh));
  r.Build([=](Rewriter& b, const Match& m) { return BuildGelu(b, m[x], "tanh"); });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
