#include "octavo/passes/expert_columns.h"

#include <vector>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes {

using canonical::Ints;

namespace {

// The rows of x where the product has I.., one row each.
bool HasOneRowEach(const Graph& g, const ExpertColumns& c) {
  const ir::SymShape &x = *g.value(c.x).type.shape, &index = *g.value(c.index).type.shape;
  if (static_cast<int64_t>(x.size()) != c.dims + 2 || !canonical::IsNumber(c.left ? x.back() : x[x.size() - 2], 1))
    return false;
  for (size_t i = 0; i < static_cast<size_t>(c.dims); ++i) {
    if (!ProvablyEqual(x[i], index[i])) return false;
  }
  return true;
}

// x without the dim of 1 at `axis`.
ValueId WithoutAxis(Rewriter& b, ValueId x, int64_t axis) {
  const Graph& g = b.graph();
  const Node* made = g.Producer(x);
  if (made != nullptr && made->op == Op::kUnsqueeze && canonical::AxesOf(g, *made) == Ints{axis}) return made->input(0);
  return b.Create(Op::kSqueeze, {x, b.Constant(ir::Tensor::S64({1}, {axis}))});
}

ir::Tensor ShapeOfSplit(int64_t leading, int64_t experts, int64_t n) {
  Ints shape(static_cast<size_t>(leading), 0);  // as they are
  shape.insert(shape.end(), {experts, n});
  return ir::Tensor::S64({leading + 2}, std::move(shape));
}

}  // namespace

std::optional<ExpertColumns> ExpertColumnsAt(const Graph& graph, NodeId gather) {
  const std::optional<Experts> experts = ExpertsAt(graph, gather);
  if (!experts || !experts->direct) return {};
  const Node &n = graph.node(gather), &product = graph.node(experts->product);
  ExpertColumns c{.experts = *experts, .x = {}, .index = n.input(1)};
  c.left = experts->slot == 0;
  c.x = product.input(c.left ? 1 : 0);
  c.tuples = n.op == Op::kGatherND;
  const auto &x = graph.value(c.x).type.shape, &index = graph.value(c.index).type.shape;
  if (!x || !index) return {};
  c.x_rank = static_cast<int64_t>(x->size());
  c.dims = static_cast<int64_t>(index->size()) - (c.tuples ? 1 : 0);
  const ir::Shape& w = graph.ConstantOf(n.input(0))->shape();
  c.count = w[0], c.k = w[static_cast<size_t>(experts->summed)], c.n = w[static_cast<size_t>(3 - experts->summed)];
  const bool one_for_all = c.dims == 0 && !c.tuples && !c.left && x->size() >= 2;
  if (!one_for_all && (c.dims == 0 || !HasOneRowEach(graph, c))) return {};
  return c;
}

void TakeExpertColumns(Rewriter& b, const ExpertColumns& c, const std::function<ValueId(ValueId rows)>& multiply) {
  const Graph& g = b.graph();
  const ValueId old = g.node(c.experts.product).output();
  ValueId index = c.index;
  if (c.dims == 0) {
    const int64_t leading = c.x_rank - 1;
    const ValueId split = b.Create(Op::kReshape, {multiply(c.x), b.Constant(ShapeOfSplit(leading, c.count, c.n))});
    b.Replace(old, b.Create(Op::kGather, {split, index}, {{"axis", leading}}));
    return b.EraseDead(c.experts.product);
  }
  const ValueId wide = multiply(WithoutAxis(b, c.x, c.left ? c.dims + 1 : c.dims));
  const ValueId split = b.Create(Op::kReshape, {wide, b.Constant(ShapeOfSplit(c.dims, c.count, c.n))});
  if (g.value(index).type.dtype != ir::DType::kS64)  // as GatherND wants them
    index = b.Create(Op::kCast, {index}, {{"to", static_cast<int64_t>(ir::DType::kS64)}});
  if (!c.tuples) index = b.Create(Op::kUnsqueeze, {index, b.Constant(ir::Tensor::S64({1}, {c.dims}))});
  const ValueId taken = b.Create(Op::kGatherND, {split, index}, {{"batch_dims", c.dims}});
  const ValueId axis = b.Constant(ir::Tensor::S64({1}, {c.left ? c.dims + 1 : c.dims}));
  b.Replace(old, b.Create(Op::kUnsqueeze, {taken, axis}));
  b.EraseDead(c.experts.product);
}

}  // namespace octavo::passes
