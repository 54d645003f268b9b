#include "octavo/passes/fusions/activations.h"

#include <algorithm>
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
  Activations a{{{gelu, "gelu"},
                 {relu, "relu"},
                 {silu, "silu"},
                 {quick_gelu, "quick_gelu"},
                 {sigmoid, "sigmoid"},
                 {tanh, "tanh"}},
                slope,
                {}};
  std::vector<Var> alternatives;
  for (const auto& [form, name] : a.forms) alternatives.push_back(form);
  a.any = r.OneOf("activation", std::move(alternatives));
  return a;
}

Verdict CheckSlope(const Match& m, const Activations& a) {
  const bool gated =
      m.Has(std::ranges::find(a.forms, std::string_view("quick_gelu"), &decltype(a.forms)::value_type::second)->first);
  if (!gated || m.scalar(a.slope) == 1.702f) return Ok();
  return Illegal(std::format("its gate has the slope {}, the kernel's is 1.702", m.scalar(a.slope)));
}

std::string ActivationName(const Match& m, const Activations& a) {
  for (const auto& [form, name] : a.forms) {
    if (!m.Has(form)) continue;
    return m.at(form).attrs.Str("approximate", "none") == "tanh" ? std::string(name) + "_tanh" : std::string(name);
  }
  return "none";
}

}  // namespace octavo::passes::fusions
