// The types of all values of a graph that is still being read.
#ifndef OCTAVO_IR_TYPED_H_
#define OCTAVO_IR_TYPED_H_

#include "octavo/ir/graph.h"

namespace octavo::ir {

// A copy in which values have the types that inference finds, by the nodes where declared shapes contradict them; the graph as it is where inference fails
// otherwise. Handles are those of the graph.
Graph Typed(const Graph& graph);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_TYPED_H_
