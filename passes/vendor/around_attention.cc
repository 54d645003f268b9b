#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::passes::vendor {

namespace {

// Rules that build or rearrange a float attention core. An ONNX Attention has no Q/DQ within and goes with the others.
bool IsOfAttention(const fusions::Rule& rule) {
  return rule.name.starts_with("sdpa") && rule.name != "sdpa_from_attention";
}

std::vector<fusions::Rule> Select(bool of_attention) {
  std::vector<fusions::Rule> chosen;
  for (const fusions::Rule& r : fusions::FloatRules()) {
    if (IsOfAttention(r) == of_attention) chosen.push_back(r);
  }
  return chosen;
}

}  // namespace

Result<bool> FuseAroundAttention(Graph& graph, PassRun& run) {
  static const auto* const rules = new std::vector<fusions::Rule>(Select(false));
  return pattern::ApplyRules(*rules, graph, run);
}
Result<bool> FuseAttentionLeft(Graph& graph, PassRun& run) {
  static const auto* const rules = new std::vector<fusions::Rule>(Select(true));
  return pattern::ApplyRules(*rules, graph, run);
}

}  // namespace octavo::passes::vendor
