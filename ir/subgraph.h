// What is given to the graphs inside of If, Loop, Scan and FlexAttention.
#ifndef OCTAVO_IR_SUBGRAPH_H_
#define OCTAVO_IR_SUBGRAPH_H_

#include "octavo/ir/graph.h"

namespace octavo::ir {

// How many values of the graph around it the node hands to its graphs; they are the last inputs of both (ops.def).
size_t CapturesOf(const Node& node);
// The type that input `i` of the node's graph `body` has whenever it runs, as inference knows it in `graph`. What a Loop or Scan carries has that of the
// output, which holds for every iteration; slices of a Scan and a Loop's own two inputs keep what `body` says.
Type TypeOfBodyInput(const Graph& graph, const Node& node, const Graph& body, size_t i);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_SUBGRAPH_H_
