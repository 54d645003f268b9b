// Before: x * Clip(x + 3, 0, 6) / 6 in any order of the products, or x * HardSigmoid(x) with alpha 1/6 and beta 1/2;  Clip(x + 3, 0, 6) / 6
// After:  HardSwish(x);  HardSigmoid(x), alpha 1/6, beta 1/2
// Mobile nets, written out by exporters below opset 14. The float result differs by rounding: at most 3 ulp of |x| + 3.
// Refuses: other constants.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

constexpr float kSixth = 1.0f / 6;

Var Clipped(RuleBuilder& r, Var x) {
  const Var sum = r.AnyOrder("plus_three", Op::kAdd, x, r.Scalar("three", 3.0));
  return r.Op("clipped", Op::kClip, {sum, r.Scalar("zero", 0.0), r.Scalar("six", 6.0)});
}

// v / 6
Var Sixth(RuleBuilder& r, const std::string& name, Var v) {
  return r.OneOf(name, {r.Op(name + "_div", Op::kDiv, {v, r.Scalar(name + "_six", 6.0)}),
                        r.AnyOrder(name + "_mul", Op::kMul, v, r.Scalar(name + "_sixth", 1.0 / 6))});
}

}  // namespace

Rule HardSwish() {
  RuleBuilder r("hard_swish", "x * clip(x + 3, 0, 6) / 6 -> HardSwish(x)");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}}), clipped = Clipped(r, x);
  r.Root(r.OneOf("out", {Sixth(r, "behind", r.AnyOrder("product", Op::kMul, x, clipped)),
                         r.AnyOrder("gated", Op::kMul, x, Sixth(r, "gate", clipped))}));
  r.Build([=](Rewriter& b, const Match& m) { return b.Create(Op::kHardSwish, {m[x]}); });
  return r.Finish();
}

Rule HardSwishGate() {
  RuleBuilder r("hard_swish_gate", "x * hard_sigmoid(x) -> HardSwish(x)");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var gate = r.Named(r.Op("gate", Op::kHardSigmoid, {x}), {{"alpha", kSixth}, {"beta", 0.5f}});
  r.Root(r.AnyOrder("out", Op::kMul, x, gate));
  r.Build([=](Rewriter& b, const Match& m) { return b.Create(Op::kHardSwish, {m[x]}); });
  return r.Finish();
}

Rule HardSigmoid() {
  RuleBuilder r("hard_sigmoid", "clip(x + 3, 0, 6) / 6 -> HardSigmoid(x)");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  r.Root(Sixth(r, "gate", Clipped(r, x)));
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kHardSigmoid, {m[x]}, {{"alpha", kSixth}, {"beta", 0.5f}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
