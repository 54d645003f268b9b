// means: a mean over the last axis is a ReduceMean that keeps it, as rules for norms have it.
// Before: GlobalAveragePool(x [b,s,c])                                        (tf2onnx writes so what TensorFlow calls a mean)
// Before: Div(ReduceSum(x, [-1]), c) or times 1/c, of ReduceSumSquare, too    (JAX)
// Before: Reshape or Unsqueeze of ReduceMean(x, [-1]) without the axis        (x.mean(-1)[..., None]; ReduceMax and ReduceSum, too)
// After:  ReduceMean(x, [-1]), of squares ReduceMean(Mul(x, x), [-1]); a ReduceMax or ReduceSum that keeps the axis
// Exact but for the order in which the mean sums, and a rounding of 1/c. Of more than three dims the pool takes several axes, and stays.
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

bool IsPool(const Graph& g, const Node& n) { return n.op == Op::kGlobalAveragePool && RankOf(g, n.input(0)) == 3; }

// n divides by `count`.
bool IsQuotient(const Graph& g, const Node& n, int64_t count) {
  const auto by = n.inputs.size() == 2 ? ConstScalarBeside(g, n.input(1), n.input(0)) : std::nullopt;
  if (!by) return false;
  const auto size = static_cast<double>(count);
  if (n.op == Op::kDiv) return *by == size;
  return n.op == Op::kMul && static_cast<float>(*by) == static_cast<float>(1.0 / size);
}

// The reduction over the last axis that v is, or is a view of.
const Node* ReductionBehind(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n != nullptr && IsReshapeLike(n->op) && g.HasOneUse(n->input(0))) n = g.Producer(n->input(0));
  if (n == nullptr || n->inputs.size() != 2) return nullptr;
  const auto axes = ConstInts(g, n->input(1));
  const int64_t rank = RankOf(g, n->input(0));
  return axes && axes->size() == 1 && rank > 0 && ((*axes)[0] + rank) % rank == rank - 1 ? n : nullptr;
}

// What n is instead: a reduction of x, or of its squares; x invalid: nothing.
struct Reduction {
  ValueId x = {}, axes = {};  // axes invalid: the last
  Op op = Op::kReduceMean;
  bool squares = false;
};

Reduction ReductionFor(const Graph& g, const Node& n) {
  if (!IsPlainFloat(DTypeOf(g, n.output()))) return {};
  if (IsPool(g, n)) return {n.input(0)};
  const bool is_view = IsReshapeLike(n.op), sums = n.op == Op::kDiv || n.op == Op::kMul;
  const Node* reduction = is_view ? ReductionBehind(g, n.output()) : sums ? ReductionBehind(g, n.input(0)) : nullptr;
  if (reduction == nullptr || (sums && !g.HasOneUse(n.input(0)))) return {};
  const ValueId x = reduction->input(0);
  const SymShape *of_x = ShapeOf(g, x), *y = ShapeOf(g, n.output());
  if (of_x == nullptr || y == nullptr || !of_x->back().is_number()) return {};
  SymShape kept = *of_x;
  kept.back() = Dim(1);
  if (!ProvablyEqual(kept, *y)) return {};
  const Op op = reduction->op;
  if (is_view) {
    const bool known = op == Op::kReduceMean || op == Op::kReduceMax || op == Op::kReduceSum;
    return known ? Reduction{x, reduction->input(1), op} : Reduction{};
  }
  const bool squares = op == Op::kReduceSumSquare, is_sum = squares || op == Op::kReduceSum;
  if (!is_sum || !IsQuotient(g, n, of_x->back().number())) return {};
  return {x, reduction->input(1), Op::kReduceMean, squares};
}

}  // namespace

Result<bool> Means(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "means");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    const Reduction r = ReductionFor(graph, graph.node(id));
    if (!r.x.valid()) continue;
    rw.At(id, {id});
    const ValueId x = r.squares ? Make(rw, Op::kMul, {r.x, r.x}, {}, TypeOf(graph, r.x)) : r.x;
    const ValueId axes = r.axes.valid() ? r.axes : MakeInts(rw, {-1});
    const Type type = TypeOf(graph, graph.node(id).output());
    ReplaceNode(rw, id, Make(rw, r.op, {x, axes}, {{"keepdims", int64_t{1}}}, type));
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
