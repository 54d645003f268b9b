// The activation functions that the epilogue of a Linear has (ir/functions.h), as a part of a pattern.
#ifndef OCTAVO_PASSES_FUSIONS_ACTIVATIONS_H_
#define OCTAVO_PASSES_FUSIONS_ACTIVATIONS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

struct Activations {
  std::vector<std::pair<pattern::Var, std::string_view>>
      forms;           // and what the attribute "activation" says, in the order in which they are tried
  pattern::Var slope;  // of the gate of quick_gelu
  pattern::Var any;    // one of them
};
Activations MatchActivation(pattern::RuleBuilder& r, pattern::Var x);
pattern::Verdict CheckSlope(const pattern::Match& m, const Activations& a);
// What the attribute "activation" says.
std::string ActivationName(const pattern::Match& m, const Activations& a);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_ACTIVATIONS_H_
