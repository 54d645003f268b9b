// means: a mean over the last axis of three is a ReduceMean, as rules for norms have it.
// Before: GlobalAveragePool(x [b,s,c])          After: ReduceMean(x, [-1]), which keeps the dim       (tf2onnx writes so what TensorFlow calls a mean)
// Exact but for the order in which the mean sums. Of more than three dims the pool takes several axes, and stays.
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

Result<bool> Means(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "means");
  for (NodeId id : graph.NodesInOrder()) {
    const Node n = graph.node(id);
    if (n.op != Op::kGlobalAveragePool || RankOf(graph, n.input(0)) != 3 || !IsPlainFloat(DTypeOf(graph, n.output())))
      continue;
    rw.At(id, {id});
    const Type type = TypeOf(graph, n.output());
    ReplaceNode(rw, id, Make(rw, Op::kReduceMean, {n.input(0), MakeInts(rw, {-1})}, {{"keepdims", int64_t{1}}}, type));
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
