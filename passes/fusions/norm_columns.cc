// Before: _, q, _ = NormQuant(x, skip, gamma, ..);  c = Gather(q, index), axis -1: all columns in order, then some of them again
// After:  _, c, _ = NormQuant(x, skip, gamma, .., index)
// Exact: codes are copied. Channels that stick out are split so (passes/quantize/smooth.cc); the row is still in L1 here, where a pass of
// its own would read and write all of it: 5 % of an int8 model.
// Refuses: another order, q that others read too.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

namespace {

constexpr size_t kIndex = 8;

bool NamesAllInOrder(const Graph& g, const Node& gather, const Node& norm) {
  const ir::Tensor* index = g.ConstantOf(gather.input(1));
  const ir::Tensor* gamma = g.ConstantOf(norm.input(2));
  const auto& shape = g.value(gather.input(0)).type.shape;
  if (index == nullptr || gamma == nullptr || !shape || index->rank() != 1 || index->dtype() != ir::DType::kS64)
    return false;
  const int64_t axis = gather.attrs.Int("axis", 0);
  if (axis != -1 && axis != static_cast<int64_t>(shape->size()) - 1) return false;
  const auto columns = index->as<int64_t>();
  const auto n = static_cast<size_t>(gamma->size());
  if (columns.size() < n) return false;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto last = static_cast<int64_t>(i < n ? i : n - 1);
    if (columns[i] > last || columns[i] < (i < n ? last : 0)) return false;
  }
  return true;
}

}  // namespace

Result<bool> FuseNormColumns(Graph& graph, PassRun& run) {
  int fused = 0;
  Rewriter b(graph, "norm_columns");
  for (NodeId id : graph.NodesInOrder()) {
    const Node gather = graph.node(id);
    if (gather.op != Op::kGather || !graph.IsFrom(gather.input(0), Op::kNormQuant)) continue;
    const NodeId norm_id = graph.value(gather.input(0)).producer;
    const Node norm = graph.node(norm_id);
    if (norm.output(1) != gather.input(0) || norm.input(kIndex) || !graph.HasOneUse(gather.input(0)) ||
        !NamesAllInOrder(graph, gather, norm))
      continue;
    b.At(norm_id, {norm_id, id});
    std::vector<ValueId> inputs = norm.inputs;
    inputs.resize(kIndex);
    inputs.push_back(gather.input(1));
    const NodeId made = b.CreateN(Op::kNormQuant, std::move(inputs), norm.outputs.size(), norm.attrs);
    for (const size_t i : {0u, 2u}) {
      if (i >= norm.outputs.size()) continue;
      if (norm.output(i)) b.Replace(norm.output(i), graph.node(made).output(i));
      if (!norm.output(i)) graph.DropOutput(made, i);
    }
    b.Replace(gather.output(), graph.node(made).output(1));
    b.EraseDead(id);
    b.EraseDead(norm_id);
    ++fused;
  }
  if (fused > 0) run.log.push_back("norm_columns: " + std::to_string(fused) + " norms with columns twice");
  if (fused > 0 && !graph.SortTopologically()) return ir::Fail("norm_columns made a cycle");
  return fused > 0;
}

}  // namespace octavo::passes::fusions
