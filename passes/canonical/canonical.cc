#include "octavo/passes/canonical/canonical.h"

#include <format>

#include "octavo/passes/guard.h"

namespace octavo::passes::canonical {

namespace {

struct Step {
  const char* name;
  Result<bool> (*run)(Graph&, PassRun&);
  const char* what;
};

// In the order in which they help each other: shapes first, for everything stands on them; linear makes the constants
// that fold evaluates in the next round; masks need the views merged; scale comes when Q and K are in their form.
constexpr Step kSteps[] = {
    {"fold", Fold, "evaluates constants, gives shape chains constant targets, drops nodes that do nothing"},
    {"dce", Dce, "erases nodes whose results nobody uses"},
    {"cse", Cse, "merges nodes that compute the same thing"},
    {"qdq", Qdq, "moves QuantizeLinear up and DequantizeLinear down across views"},
    {"einsum", Einsum, "writes Einsum of two operands as MatMul"},
    {"experts", ExpertLinears, "writes products by a constant of one matrix for each expert or head as Linears"},
    {"expert_loops", ExpertLoops, "writes sums over experts as products with the matrices of the chosen ones"},
    {"linear", Linear, "brings Gemm, transposed weights and leading biases to MatMul and Add"},
    {"views", Views, "merges Reshape, Transpose, Squeeze, Unsqueeze and Flatten"},
    {"repeat", Repeat, "repeats heads by Unsqueeze, Expand and Reshape"},
    {"auto_pads", AutoPads, "writes the pads of convolutions as numbers where they follow from sizes"},
    {"pointwise", Pointwise, "writes convolutions of kernel 1 before and behind attention as Linears"},
    {"packed", Packed, "takes Q, K and V apart along the last axis of a packed projection"},
    {"means", Means, "writes a mean over the last axis as ReduceMean"},
    {"row_norms", RowNorms, "writes norms of rows in another shape or with a guard as chains over the last axis"},
    {"masks", Masks, "computes masks at their smallest shape"},
    {"widen", Widen, "computes 16-bit attention in f32"},
    {"softmax_axis", SoftmaxAxis, "computes the Softmax of attention scores over their last axis"},
    {"renormalized", Renormalized, "masks scores where probabilities are masked and divided by what is left of them"},
    {"turned", Turned, "writes products of attention that were computed transposed the other way round"},
    {"scale", Scale, "scales attention scores once, behind the product"},
    {"probabilities", Probabilities, "moves masks and sinks of the probabilities to V and K"},
    {"mixtures", Mixtures, "multiplies each term of a sum of probabilities with V by itself"},
    {"scores", Scores, "multiplies, caps and masks scores once each, in that order"},
    {"cores", Cores, "brings attention of any rank, with views and with a scale for each head, to products of rank 4"},
};

constexpr int kMaxRounds = 12;  // a guard: the 412 graphs of tests/data/zoo settle in five at most, most in two

}  // namespace

const std::vector<std::shared_ptr<const Pass>>& CanonicalPasses() {
  static const auto* const passes = [] {
    auto* all = new std::vector<std::shared_ptr<const Pass>>;
    for (const Step& s : kSteps)
      all->push_back(std::make_shared<FunctionPass>(PassInfo{.name = s.name, .what = s.what}, s.run));
    return all;
  }();
  return *passes;
}

Result<bool> Canonicalize(Graph& graph, PassRun& run) {
  bool changed = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool this_round = false;
    for (const Step& step : kSteps) {
      auto result = run.careful ? RunPass(FunctionPass({.name = step.name, .what = step.what}, step.run), graph, run)
                                : step.run(graph, run);
      if (!result) return ir::Fail("in pass {}: {}", step.name, result.error().message);
      this_round = this_round || *result;
    }
    if (!this_round) break;
    changed = true;
  }
  return changed;
}

}  // namespace octavo::passes::canonical
