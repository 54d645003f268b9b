// Why something that looks like attention or like its projections is not fused, told from the graph: the node or value that is in
// the way, by its source name. Used where no rule came near enough to tell it itself.
#ifndef OCTAVO_PASSES_DIAGNOSE_H_
#define OCTAVO_PASSES_DIAGNOSE_H_

#include <string>

#include "octavo/passes/attention.h"

namespace octavo::passes {

// "MatMul '/q/MatMul'", "graph input 'w_k'", "constant 'w'".
std::string Describe(const Graph& graph, ValueId value);

// What stands between the Softmax of a core and its products that is not scale, cap, mask or guard; empty: nothing.
std::string WhyNotAttention(const Graph& graph, const AttentionCore& core);

// The product of queries and keys that a Softmax normalizes, whatever stands between; invalid: there is none.
ValueId ScoresOf(const Graph& graph, NodeId softmax);
// Whether what a Softmax gives is multiplied with values, whatever stands between: with ScoresOf it is attention, also where no form of it here has that.
bool MeetsValues(const Graph& graph, NodeId softmax);

// Why a Softmax is the center of no attention core.
std::string WhyNoCore(const Graph& graph, NodeId softmax);

// Why q, k and v of a core have no common projection: a weight that is no constant, an operand that no Linear makes, activations
// that differ. Empty where two of them are not projections at all (there is nothing to group), or where they do form a group.
std::string WhyNoGroup(const Graph& graph, const AttentionCore& core);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_DIAGNOSE_H_
