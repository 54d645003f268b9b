#include "octavo/ir/typed.h"

#include "octavo/ir/infer.h"

namespace octavo::ir {

Graph Typed(const Graph& graph) {
  Graph typed = graph;
  if (Inference::Run(typed)) return typed;
  typed = graph;  // what failed may have left half of its types
  DropFalseShapes(typed);
  return Inference::Run(typed) ? typed : graph;
}

}  // namespace octavo::ir
