// Before: _, q, _ = NormQuant(x, skip, gamma, ..);  c = Gather(q, index), axis -1: all columns in order, then some of them again
// After:  _, c, _ = NormQuant(x, skip, gamma, .., index)
// Exact: codes are copied. Channels that stick out are split so (passes/quantize/smooth.cc); the row is still in L1 here, where a pass of
// its own would read and write all of it: 5 % of an int8 model.
// Refuses: another order, q that others read too.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

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

Rule NormColumns() {
  RuleBuilder r("norm_columns", "NormQuant, then columns of its codes twice -> NormQuant with an index");
  std::vector<Var> inputs(kIndex, Anything());
  inputs.push_back(Absent());
  const Var norm = r.Open(r.Output(r.Op("norm", Op::kNormQuant, std::move(inputs)), 1));
  const Var columns = r.Open(r.Op("columns", Op::kGather, {norm, r.Constant("index")}));
  r.Root(columns);
  r.Guard([=](const Match& m) {
    if (NamesAllInOrder(m.graph(), m.at(columns), m.at(norm))) return Ok();
    return Illegal("the columns are not all in their order, and some again");
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Graph& g = m.graph();
    const NodeId old = m.node(norm);
    const Node norm_node = g.node(old);
    b.At(old, {old, m.node(columns)});
    std::vector<ValueId> inputs = norm_node.inputs;
    inputs.resize(kIndex);
    inputs.push_back(m.at(columns).input(1));
    const NodeId made = b.CreateN(Op::kNormQuant, std::move(inputs), norm_node.outputs.size(), norm_node.attrs);
    for (const size_t i : {0u, 2u}) {
      if (i >= norm_node.outputs.size()) continue;
      if (norm_node.output(i)) b.Replace(norm_node.output(i), g.node(made).output(i));
      if (!norm_node.output(i)) b.graph().DropOutput(made, i);
    }
    return g.node(made).output(1);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
