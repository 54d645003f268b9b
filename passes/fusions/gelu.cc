// Before: x * 0.5 * (1 + Erf(x / sqrt 2)) in any order, also x * (0.5 + 0.5 * Erf(..)) and 0.5 * (x + x * Erf(..)); or the tanh form, also Tanh(x * sqrt(2/pi) * (1 + c x^2)) (BLOOM)
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

// x * (t + 1) * 0.5 in each association that exporters and authors write.
Var HalfProduct(RuleBuilder& r, Var x, Var t) {
  const Var half = r.Scalar("half", 0.5), other_half = r.Scalar("other_half", 0.5);
  const Var one_plus = r.AnyOrder("one_plus", Op::kAdd, t, r.Scalar("one", 1.0));
  const Var half_plus = r.AnyOrder("half_plus", Op::kAdd, r.AnyOrder("t_half", Op::kMul, t, half), other_half);
  const Var terms = r.AnyOrder("terms", Op::kAdd, r.AnyOrder("x_of_t", Op::kMul, x, t), x);
  return r.OneOf("product",
                 {r.AnyOrder("x_t_half", Op::kMul, r.AnyOrder("x_t", Op::kMul, x, one_plus), half),
                  r.AnyOrder("half_x_t", Op::kMul, r.AnyOrder("half_x", Op::kMul, x, half), one_plus),
                  r.AnyOrder("x_half_t", Op::kMul, x, r.AnyOrder("half_t", Op::kMul, one_plus, half)),
                  r.AnyOrder("x_and_half", Op::kMul, x, half_plus), r.AnyOrder("half_terms", Op::kMul, terms, half)});
}

Rule Finish(RuleBuilder& r, Var x, const char* approximate) {
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kGelu, {m[x]}, {{"approximate", std::string(approximate)}});
  });
  return r.Finish();
}

}  // namespace

Rule GeluErf() {
  RuleBuilder r("gelu_erf", "x * 0.5 * (1 + erf(x / sqrt 2)) -> Gelu(x)");
  const Var x = r.Input("x"), scaled = r.Op("divided", Op::kDiv, {x, r.Scalar("sqrt2", std::numbers::sqrt2)});
  r.Root(HalfProduct(r, x, r.Op("erf", Op::kErf, {scaled})));
  return Finish(r, x, "none");
}

Rule GeluErfScaled() {
  RuleBuilder r("gelu_erf_scaled", "x * 0.5 * (1 + erf(x * 0.7071)) -> Gelu(x)");
  const Var x = r.Input("x"), factor = r.Scalar("rsqrt2", std::numbers::sqrt2 / 2);
  r.Root(HalfProduct(r, x, r.Op("erf", Op::kErf, {r.AnyOrder("scaled", Op::kMul, x, factor)})));
  return Finish(r, x, "none");
}

Rule GeluTanh() {
  RuleBuilder r("gelu_tanh", "x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) -> Gelu(x, tanh)");
  const Var x = r.Input("x"), c = r.Scalar("c", 0.044715), xx = r.Op("xx", Op::kMul, {x, x});
  const Var cube =
      r.OneOf("cube", {r.Op("pow", Op::kPow, {x, r.Scalar("three", 3.0)}), r.AnyOrder("xxx", Op::kMul, xx, x)});
  const Var cxx = r.OneOf("c_square", {r.AnyOrder("cx_x", Op::kMul, r.AnyOrder("cx", Op::kMul, x, c), x),
                                       r.AnyOrder("xx_c", Op::kMul, xx, c)});
  const Var small = r.OneOf("small", {r.AnyOrder("c_cube", Op::kMul, cube, c), r.AnyOrder("cxx_x", Op::kMul, cxx, x)});
  const Var sum = r.AnyOrder("sum", Op::kAdd, x, small),
            factor = r.Scalar("sqrt2pi", std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  const Var more = r.AnyOrder("one_more", Op::kAdd, cxx, r.Scalar("unit", 1.0));
  const Var inner = r.OneOf("inner", {r.AnyOrder("sum_times", Op::kMul, sum, factor),
                                      r.AnyOrder("x_times", Op::kMul, r.AnyOrder("fx", Op::kMul, x, factor), more)});
  r.Root(HalfProduct(r, x, r.Op("tanh", Op::kTanh, {inner})));
  return Finish(r, x, "tanh");
}

}  // namespace octavo::passes::fusions
