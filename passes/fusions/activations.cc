#include "octavo/passes/fusions/activations.h"

#include <format>

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Activations MatchActivation(RuleBuilder& r, Var x) {
  const Var slope = r.Scalar("slope", 1.702);
  const Var gelu = r.Open(r.Op("gelu", Op::kGelu, {x})), relu = r.Op("relu", Op::kRelu, {x}),
            sigmoid = r.Op("sigmoid", Op::kSigmoid, {x}), tanh = r.Op("tanh", Op::kTanh, {x}),
            silu = r.AnyOrder("silu", Op::kMul, x, r.Op("gate", Op::kSigmoid, {x}));
  const Var steeper = r.AnyOrder("steeper", Op::kMul, x, slope);
  const Var quick_gelu = r.AnyOrder("quick_gelu", Op::kMul, x, r.Op("quick_gate", Op::kSigmoid, {steeper}));
  return {gelu, relu,       sigmoid, tanh,
          silu, quick_gelu, slope,   r.OneOf("activation", {gelu, relu, silu, quick_gelu, sigmoid, tanh})};
}

Verdict CheckSlope(const Match& m, const Activations& a) {
  if (!m.Has(a.quick_gelu) || m.scalar(a.slope) == 1.702f) return Ok();
  return Illegal(std::format("its gate has the slope {}, the kernel's is 1.702", m.scalar(a.slope)));
}

std::string ActivationName(const Match& m, const Activations& a) {
  if (m.Has(a.gelu)) return m.at(a.gelu).attrs.Str("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu";
  if (m.Has(a.relu)) return "relu";
  if (m.Has(a.silu)) return "silu";
  if (m.Has(a.quick_gelu)) return "quick_gelu";
  if (m.Has(a.sigmoid)) return "sigmoid";
  return m.Has(a.tanh) ? "tanh" : "none";
}

}  // namespace octavo::passes::fusions
