// Before: y = activation(QuantizedLinear(x, w, [bias]))
// After:  y = QuantizedLinear(x, w, [bias]), activation as attribute
// For products without Q/DQ around them, which quantized_linear.cc would take whole: those of the pass `dynamic`.
// Exact: the body of QuantizedLinear is what stood there (ir/functions.h).
// Refuses: a Linear that ends with more than a bias, a gate of another slope.
#include "octavo/passes/fusions/activations.h"
#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

constexpr size_t kBehindBias = 6;  // operands of QuantizedLinear

Verdict Check(const Match& m, Var linear, const Activations& act) {
  const Node& n = m.at(linear);
  if (HasEpilogue(n, kBehindBias) || n.attrs.Str("activation", "none") != "none")
    return NotWorth("the Linear has more than a bias behind it already");
  return CheckSlope(m, act);
}

}  // namespace

Rule LinearActivation() {
  RuleBuilder r("linear_activation", "activation(QuantizedLinear) -> QuantizedLinear");
  const Var linear = r.Open(r.Op("linear", Op::kQuantizedLinear, {}));
  const Activations act = MatchActivation(r, linear);
  r.Root(act.any);
  r.Guard([=](const Match& m) { return Check(m, linear, act); });
  r.Build([=](Rewriter& b, const Match& m) {
    ir::Attrs attrs = m.at(linear).attrs;
    attrs.Set("activation", ActivationName(m, act));
    return b.Create(Op::kQuantizedLinear, m.at(linear).inputs, std::move(attrs));
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
