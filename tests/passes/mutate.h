// Random edits of a graph that keep its meaning: what another exporter, another version or a user's tool might have written.
#ifndef OCTAVO_TESTS_PASSES_MUTATE_H_
#define OCTAVO_TESTS_PASSES_MUTATE_H_

#include <random>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::passes {

// Applies `edits` edits; returns what was done, one word each with the value it was done to. The graph must have types.
// New graph outputs are named "extra...".
std::vector<std::string> Mutate(ir::Graph& graph, int edits, std::mt19937& rng);

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_MUTATE_H_
