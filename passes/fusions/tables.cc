// Before: q = Q(Mul(DQ(Q(Mul(DQ(x), DQ(Q(Add(DQ(Q(Erf(DQ(Q(Div(DQ(x), 1.41)))))), 1)))))), 0.5))      x u8 or s8
// After:  q = Lookup(x, table)                                                                        table [256]
// Exact: whatever stands between, a function of one code has 256 values, and the interpreter computes them. Static quantization
// that puts codes behind every op (ONNX Runtime's default) makes such chains of each activation function.
// Refuses: more than one tensor of codes, constants of more than one element, ops that are not element-wise.
#include <ranges>

#include "octavo/ir/infer.h"
#include "octavo/passes/fusions/functions_of_codes.h"

namespace octavo::passes::fusions {

Result<bool> FuseTables(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter b(graph, "tables");
  CodeSources sources(graph);
  int made = 0;
  const std::vector<NodeId> nodes = graph.NodesInOrder();
  for (NodeId id : std::views::reverse(nodes)) {  // the longest functions first
    if (!graph.IsAlive(id) || !IsCoding(graph, graph.node(id), Op::kQuantizeLinear)) continue;
    const Node q = graph.node(id);
    const ValueId source = sources.Of(q.input(0));
    if (!source.valid() || !SameShape(graph, source, q.output())) continue;
    const auto table = TableOf(graph, q, source);
    if (!table) continue;
    b.At(id, {id});
    const ValueId y = b.Create(Op::kLookup, {source, b.Constant(*table)});
    graph.SetType(y, graph.value(q.output()).type);
    b.Replace(q.output(), y);
    b.EraseDead(id);
    ++made;
  }
  if (made > 0) run.log.push_back("tables: " + std::to_string(made) + " functions of codes became tables");
  return made > 0;
}

}  // namespace octavo::passes::fusions
