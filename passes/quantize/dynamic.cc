// dynamic: int8 products without calibration; behind `quantize` those of the Linears that it left in float. Each row of the activation is quantized at run time with a scale and a zero point of its
// own: behind a GELU half of the codes around zero would never be used.
// Before: y = MatMul(x, W)     W f32 [K,N] constant
// After:  q, s, z = QuantizeTokens(x)   y = QuantizedLinear(q, s, z, Wq, w_scale; per_token = 1)
// Bias and activation behind it go in by the rules of fusions/linear_bias.cc and linear_activation.cc. Linears that read the same x share its codes. Attention stays
// float.
// Experts that a Gather takes are columns of such a product (expert_codes.h).
// Left, with a line in the log: weights that are not finite, k beyond what int32 sums hold.
#include <map>

#include "octavo/kernels/catalog.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/expert_codes.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

struct Tokens {
  ValueId codes, scale, zero;
};

}  // namespace

Result<bool> Dynamic(Graph& graph, PassRun& run) {
  Rewriter b(graph, "dynamic");
  std::map<ValueId, Tokens> tokens;
  std::map<ValueId, std::optional<ColumnWeights>> weights;
  std::map<ValueId, std::pair<ValueId, ValueId>> made;
  for (NodeId id : FindSites(graph, run.keep_float).linears) {
    const Node& n = graph.node(id);
    const ValueId x = n.inputs[0], w = n.inputs[1];
    auto [columns, fresh] = weights.try_emplace(w);
    if (fresh) columns->second = QuantizeWeight(*graph.ConstantOf(w), DType::kS8, run);
    const auto& shape = graph.ConstantOf(w)->shape();
    const kernels::Choice choice =
        kernels::ChooseLinear({.y = {DType::kF32}, .k = shape[0], .n = {shape[1]}}, kernels::Arch::kScalar);
    if (!columns->second || !choice.ok()) {
      const std::string why = choice.ok() ? "its weight has values that are not finite" : choice.refusal;
      run.Leave("dynamic", n, "stays float: " + why);
      continue;
    }
    b.At(id, {id});
    auto [at, first] = tokens.try_emplace(x);
    if (first) {
      const Node& q = graph.node(b.CreateN(Op::kQuantizeTokens, {x}, 3));
      at->second = {q.output(0), q.output(1), q.output(2)};
    }
    auto [stored, unseen] = made.try_emplace(w);
    if (unseen) {
      const std::string name = graph.value(w).name;
      stored->second = {b.Constant(columns->second->codes, name + "_quantized"),
                        b.Constant(columns->second->scale, name + "_scale")};
    }
    const auto& [codes, scale, zero] = at->second;
    const ValueId y = b.Create(Op::kQuantizedLinear, {codes, scale, zero, stored->second.first, stored->second.second},
                               {{"activation", "none"}, {"per_token", int64_t{1}}});
    b.Replace(graph.node(id).output(), y);
    b.EraseDead(id);
  }
  OCTAVO_TRY(const bool experts, ExpertTokens(graph, run));
  const bool changed = b.changed() || experts;
  if (changed && !graph.SortTopologically()) return ir::Fail("dynamic made a cycle");
  OCTAVO_TRY(const bool merged, pattern::ApplyRules(fusions::EpilogueRules(), graph, run));
  return changed || merged;
}

}  // namespace octavo::passes::quantize
