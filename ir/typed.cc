#include "octavo/ir/typed.h"

#include <algorithm>
#include <set>

#include "octavo/ir/infer.h"

namespace octavo::ir {

Graph Typed(const Graph& graph) {
  Graph typed = graph;
  if (Inference::Run(typed)) return typed;
  typed = graph;  // what failed may have left half of its types
  DropFalseShapes(typed);
  return Inference::Run(typed) ? typed : graph;
}

namespace {

// Whether operand 1 says the sizes of the results, and not only which elements they have.
bool TakesSizes(Op op) { return op == Op::kReshape || op == Op::kExpand || op == Op::kSplit || op == Op::kTile; }

}  // namespace

void DropDecidedShapes(Graph& graph) {
  std::set<ValueId> elements(graph.inputs().begin(), graph.inputs().end());  // made of elements of inputs
  std::set<ValueId> decided;                                                 // whose sizes such elements decide
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op == Op::kShape || n.op == Op::kSize) continue;
    const auto is_in = [](const std::set<ValueId>& values, ValueId v) { return v.valid() && values.contains(v); };
    const auto reads = [&](const std::set<ValueId>& values) {
      return std::ranges::any_of(n.inputs, [&](ValueId v) { return is_in(values, v); });
    };
    if (reads(elements)) elements.insert(n.outputs.begin(), n.outputs.end());
    if (!reads(decided) && !(TakesSizes(n.op) && is_in(elements, n.input(1)))) continue;
    decided.insert(n.outputs.begin(), n.outputs.end());
    if (n.op == Op::kOpaque) continue;  // nothing else tells what it gives
    for (const ValueId v : n.outputs) {
      if (v.valid()) graph.SetType(v, {graph.value(v).type.dtype, {}});
    }
  }
}

}  // namespace octavo::ir
