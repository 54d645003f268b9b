#include "octavo/passes/canonical/canonical.h"

#include <array>
#include <format>

#include "octavo/passes/guard.h"

namespace octavo::passes::canonical {

namespace {

// In the order in which they help each other: shapes first, for everything stands on them; linear makes the constants
// that fold evaluates in the next round; masks need the views merged; scale comes when Q and K are in their form.
constexpr std::array kPasses = {
    Pass{"fold", Fold, "evaluates constants, gives shape chains constant targets, drops nodes that do nothing"},
    Pass{"dce", Dce, "erases nodes whose results nobody uses"},
    Pass{"cse", Cse, "merges nodes that compute the same thing"},
    Pass{"qdq", Qdq, "moves QuantizeLinear up and DequantizeLinear down across views"},
    Pass{"einsum", Einsum, "writes Einsum of two operands as MatMul"},
    Pass{"linear", Linear, "brings Gemm, transposed weights and leading biases to MatMul and Add"},
    Pass{"views", Views, "merges Reshape, Transpose, Squeeze, Unsqueeze and Flatten"},
    Pass{"repeat", Repeat, "repeats heads by Unsqueeze, Expand and Reshape"},
    Pass{"packed", Packed, "takes Q, K and V apart along the last axis of a packed projection"},
    Pass{"masks", Masks, "computes masks at their smallest shape"},
    Pass{"widen", Widen, "computes 16-bit attention in f32"},
    Pass{"scale", Scale, "scales attention scores once, behind the product"},
    Pass{"probabilities", Probabilities, "moves masks and sinks of the probabilities to V and K"},
    Pass{"scores", Scores, "multiplies, caps and masks scores once each, in that order"},
};

constexpr int kMaxRounds = 12;  // a guard: the 412 graphs of tests/data/zoo settle in five at most, most in two

}  // namespace

std::span<const Pass> CanonicalPasses() { return kPasses; }

Result<bool> Canonicalize(Graph& graph, PassContext& context) {
  bool changed = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool this_round = false;
    for (const Pass& pass : kPasses) {
      auto result = context.careful ? RunPass(pass, graph, context) : pass.run(graph, context);
      if (!result) return ir::Fail("in pass {}: {}", pass.name, result.error().message);
      this_round = this_round || *result;
    }
    if (!this_round) break;
    changed = true;
  }
  return changed;
}

}  // namespace octavo::passes::canonical
