// dynamic: int8 products without calibration; behind `quantize` those of the Linears that it left in float. Each row of the activation is quantized at run time with a scale and a zero point of its
// own: behind a GELU half of the codes around zero would never be used.
// Before: y = MatMul(x, W)     W f32 [K,N] constant
// After:  q, s, z = QuantizeTokens(x)   y = QuantizedLinear(q, s, z, Wq, w_scale; per_token = 1)
// Bias and activation behind it go in by the rules of fusions/linear_bias.cc and linear_activation.cc. Linears that read the same x share its codes. Attention stays
// float.
// Experts that a Gather takes are columns of such a product (expert_codes.h).
// Left, with a line in the log: weights that are not finite, k beyond what int32 sums hold.
#include <map>

#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/expert_codes.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/token_linears.h"

namespace octavo::passes::quantize {

using ir::DType;

Result<bool> Dynamic(Graph& graph, PassRun& run) {
  Rewriter b(graph, "dynamic");
  TokenLinears linears(graph, b);
  std::map<ValueId, std::optional<ColumnWeights>> weights;
  for (NodeId id : FindSites(graph, run.keep_float).linears) {
    const Node& n = graph.node(id);
    const ValueId w = n.inputs[1];
    auto [columns, fresh] = weights.try_emplace(w);
    if (fresh) columns->second = QuantizeWeight(*graph.ConstantOf(w), DType::kS8, run);
    std::string why = WhyNoTokens(graph.ConstantOf(w)->shape());
    if (why.empty() && !columns->second) why = "its weight has values that are not finite";
    if (!why.empty()) {
      run.Leave("dynamic", n, "stays float: " + why);
      continue;
    }
    linears.Replace(id, [&] { return TokenLinears::Weight{columns->second->codes, columns->second->scale}; });
  }
  OCTAVO_TRY(const bool experts, ExpertTokens(graph, run));
  const bool changed = b.changed() || experts;
  if (changed && !graph.SortTopologically()) return ir::Fail("dynamic made a cycle");
  OCTAVO_TRY(const bool merged, pattern::ApplyRules(fusions::EpilogueRules(), graph, run));
  return changed || merged;
}

}  // namespace octavo::passes::quantize
