// Products of one activation, which the runtime runs as one step while they stay apart in the file.
#ifndef OCTAVO_IR_BESIDE_H_
#define OCTAVO_IR_BESIDE_H_

#include <span>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir {

inline constexpr size_t kMostBeside = 8;  // QuantizedLinears of a step

// The LinearBlocked or QuantizedLinears, whichever `id` is, that read what it reads in the same way, in the graph's order; `id` is among them but for a
// residual, which has a step of its own.
std::vector<NodeId> ProductsBeside(const Graph& g, NodeId id);

// Whether all of them, two or more, are such products of one step.
bool AreOneStep(const Graph& g, std::span<const NodeId> products);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_BESIDE_H_
