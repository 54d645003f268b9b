// dynamic4: as `dynamic`, with weights of 4 bits in whole steps of one scale a column (steps.h), so that the product is one of int8.
// Before: y = MatMul(x, W)     W f32 [K,N] constant
// After:  q, s, z = QuantizeTokens(x)   y = QuantizedLinear(q, s, z, Wq, w_scale; w_step, w_zero; per_token = 1)
// With the option `bits`, weights that lose most by 4 bits get 8, as in `dynamic`. With calibration data 4-bit codes make up for each
// other's errors, but for experts that a Gather takes (expert_codes.h).
// Left, with a line in the log: weights that are not finite, k below 16 or beyond what int32 sums hold.
#include <map>

#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/expert_codes.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/round_weights.h"
#include "octavo/passes/quantize/steps.h"
#include "octavo/passes/quantize/token_linears.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

class StepCodes : public Codes {
 public:
  explicit StepCodes(const ParallelFor& parallel) : parallel_(parallel) {}

  Result<double> Round(ValueId w, const Tensor& values, const Compensation* fit) override {
    OCTAVO_TRY(Stepped q, RoundInSteps(values, fit, parallel_));
    const double error = q.error;
    four_.emplace(w, std::move(q));
    return error;
  }
  Status Widen(ValueId w, const Tensor& values) override {
    std::optional<ColumnWeights> columns = QuantizeColumns(values);
    if (!columns) return {};  // scales that are no numbers: its steps are
    eight_.emplace(w, std::move(*columns));
    four_.erase(w);
    return {};
  }

  TokenLinears::Weight Of(ValueId w) const {
    if (const auto wide = eight_.find(w); wide != eight_.end()) return {wide->second.codes, wide->second.scale};
    const Stepped& q = four_.at(w);
    return {q.codes, q.scale, &q.step, &q.zero};
  }

 private:
  const ParallelFor& parallel_;
  std::map<ValueId, Stepped> four_;
  std::map<ValueId, ColumnWeights> eight_;
};

}  // namespace

Result<bool> Dynamic4(Graph& graph, PassRun& run) {
  OCTAVO_TRY(const double bits, BitsOf(run));
  StepCodes codes(run.parallel);
  OCTAVO_TRY(const Rounded rounded, RoundWeights(graph, run, {.fits = true, .bits = bits}, codes));
  Rewriter b(graph, "dynamic4");
  TokenLinears linears(graph, b);
  for (const auto& [id, x, w] : rounded.linears) {
    const auto in_float = rounded.left.find(w);
    const std::string why =
        in_float != rounded.left.end() ? in_float->second : WhyNoTokens(graph.ConstantOf(w)->shape());
    if (!why.empty()) {
      run.Leave("dynamic4", graph.node(id), "stays float: " + why);
      continue;
    }
    linears.Replace(id, [&] { return codes.Of(w); });
  }
  OCTAVO_TRY(const bool experts, ExpertSteps(graph, run));
  const bool changed = b.changed() || experts;
  if (changed && !graph.SortTopologically()) return ir::Fail("dynamic4 made a cycle");
  OCTAVO_TRY(const bool merged, pattern::ApplyRules(fusions::EpilogueRules(), graph, run));
  return changed || merged;
}

}  // namespace octavo::passes::quantize
