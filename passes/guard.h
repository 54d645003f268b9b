// A rewrite keeps what the graph means, or it is not made. Types are what can be checked cheaply: a value that takes the place of another has its
// element type, its rank and its dims. What does not is undone, told as a near miss, and the model goes on without it.
#ifndef OCTAVO_PASSES_GUARD_H_
#define OCTAVO_PASSES_GUARD_H_

#include <string>

#include "octavo/passes/pass.h"

namespace octavo::passes {

// "f32[2,3] instead of f32[1,2,3]"; empty: nothing that is known of both contradicts.
std::string Contradiction(const ir::Type& was, const ir::Type& is);

// Infers the live nodes whose ids begin at `first` (Graph::node_capacity before they were made), without the rest of the graph. Empty, or
// why they cannot be what they stand for.
std::string WhyWrong(const Graph& graph, size_t first);

// Runs one pass, then infers and verifies. Where that fails it is tried once more with PassRun::careful, and where that fails too, graph
// and context stay as they were, a note says so, and the result is false. The only errors are those of PassRun::given_up.
Result<bool> RunPass(const Pass& pass, Graph& graph, PassRun& run);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_GUARD_H_
