// Before: x * (1 + Erf(x / sqrt 2)), whose 0.5 went into the weights behind it (onnxsim)       After: Gelu(x) * 2
// Before: x * 0.5 * (1 - Erf(-x / sqrt 2)) in any order of the products (erfc of tf2onnx, dynamo)    After: Gelu(x)
// Float results differ by rounding, as in gelu.cc; the 2 is exact.
// Refuses: other constants.
#include <numbers>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

constexpr double kRoot = std::numbers::sqrt2;

// x / c, also as x * (1 / c)
Var Over(RuleBuilder& r, const std::string& name, Var x, double c) {
  return r.OneOf(name, {r.Op(name + "_div", Op::kDiv, {x, r.Scalar(name + "_c", c)}),
                        r.AnyOrder(name + "_mul", Op::kMul, x, r.Scalar(name + "_1_c", 1 / c))});
}

}  // namespace

Rule GeluTwice() {
  RuleBuilder r("gelu_twice", "x * (1 + erf(x / sqrt 2)) -> Gelu(x) * 2");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}}), erf = r.Op("erf", Op::kErf, {Over(r, "inner", x, kRoot)});
  const Var one_plus = r.AnyOrder("one_plus", Op::kAdd, erf, r.Scalar("one", 1.0));
  r.Root(r.OneOf("product", {r.AnyOrder("x_t", Op::kMul, x, one_plus),
                             r.AnyOrder("terms", Op::kAdd, r.AnyOrder("x_of_t", Op::kMul, x, erf), x)}));
  r.Build([=](Rewriter& b, const Match& m) {
    const ValueId gelu = b.Create(Op::kGelu, {m[x]}, {{"approximate", std::string("none")}});
    return b.Create(Op::kMul, {gelu, b.Constant(ir::Tensor::ScalarF32(2.0f))});
  });
  return r.Finish();
}

Rule GeluErfc() {
  RuleBuilder r("gelu_erfc", "x * 0.5 * (1 - erf(-x / sqrt 2)) -> Gelu(x)");
  const Var x = r.Input("x"), half = r.Scalar("half", 0.5);
  const Var inner =
      r.OneOf("inner", {Over(r, "by_negative", x, -kRoot), Over(r, "of_negative", r.Op("minus", Op::kNeg, {x}), kRoot),
                        r.Op("negative", Op::kNeg, {Over(r, "by_positive", x, kRoot)})});
  const Var rest = r.Op("rest", Op::kSub, {r.Scalar("one", 1.0), r.Op("erf", Op::kErf, {inner})});
  r.Root(r.OneOf("product", {r.AnyOrder("x_t_half", Op::kMul, r.AnyOrder("x_t", Op::kMul, x, rest), half),
                             r.AnyOrder("half_x_t", Op::kMul, r.AnyOrder("half_x", Op::kMul, x, half), rest),
                             r.AnyOrder("x_half_t", Op::kMul, x, r.AnyOrder("half_t", Op::kMul, rest, half))}));
  r.Build(
      [=](Rewriter& b, const Match& m) { return b.Create(Op::kGelu, {m[x]}, {{"approximate", std::string("none")}}); });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
