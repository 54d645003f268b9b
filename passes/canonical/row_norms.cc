// row_norms: norms of rows in another shape, with a guard, or with a variance in double are plain chains over the last axis, as rules for norms have them.
// Before: BatchNormalization(r, 1, 0, m, v): r = Reshape(x [.., K], [1, N, K, 1]), m = ReduceMean(r, [0, 2, 3]), v = ReduceSumSquare(r - m, [0, 2, 3]) / K  (Keras 2)
// After:  Reshape(d / Sqrt(ReduceMean(d * d, [-1]) + eps), [1, N, K, 1]), d = x - ReduceMean(x, [-1])
// Before: Where(c [.., 1], 0, x - ReduceMean(x, [-1]))                  (jax2onnx: c says that a row has one value alone, whose mean may round)
// After:  z - ReduceMean(z, [-1]), z = Where(c, 0, x)                  exact: a row of zeros has a mean of zero
// Before: Cast(ReduceMean(Cast(d * d, double), [-1]), float)           (jax2onnx)
// After:  ReduceMean(d * d, [-1])
// But for the guard, the float result differs by rounding: a few ulp of the terms.
#include <cmath>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

// Every element of v is x: a constant, also one that was expanded.
bool IsFilledWith(const Graph& g, ValueId v, double x) {
  const Node* n = g.Producer(v);
  const Tensor* t = g.ConstantOf(n != nullptr && n->op == Op::kExpand ? n->input(0) : v);
  if (t == nullptr) return false;
  for (int64_t i = 0; i < t->size(); ++i) {
    if (t->GetDouble(i) != x) return false;
  }
  return true;
}

// n reduces r [1, N, K, 1] to a number for each channel.
bool IsOfChannels(const Graph& g, const Node* n, Op op, ValueId r) {
  return n != nullptr && n->op == op && n->input(0) == r && ConstInts(g, n->input(1)) == Ints{0, 2, 3};
}

// v is a mean of each channel of r, perhaps through a view.
bool IsMeanOfChannels(const Graph& g, ValueId v, ValueId r) {
  const Node* n = g.Producer(v);
  if (n != nullptr && IsReshapeLike(n->op)) n = g.Producer(n->input(0));
  return IsOfChannels(g, n, Op::kReduceMean, r);
}

bool IsVarianceOfChannels(const Graph& g, ValueId v, ValueId r, int64_t count) {
  const Node* over = g.Producer(v);
  if (over == nullptr || over->op != Op::kDiv || ConstScalar(g, over->input(1)) != static_cast<double>(count))
    return false;
  const Node* squares = g.Producer(over->input(0));
  const Node* d = squares == nullptr ? nullptr : g.Producer(squares->input(0));
  return d != nullptr && d->op == Op::kSub && d->input(0) == r && IsMeanOfChannels(g, d->input(1), r) &&
         IsOfChannels(g, squares, Op::kReduceSumSquare, squares->input(0));
}

// The x whose rows are the channels that n normalizes by their own moments; invalid: they are not.
ValueId RowsOfBatchNorm(const Graph& g, const Node& n) {
  const ValueId r = n.input(0);
  const Node* view = g.Producer(r);
  if (DTypeOf(g, r) != DType::kF32 || n.attrs.Int("training_mode", 0) != 0 || view == nullptr ||
      view->op != Op::kReshape)
    return {};
  const SymShape *x = ShapeOf(g, view->input(0)), *s = ShapeOf(g, r);
  if (x == nullptr || s == nullptr || x->size() < 2 || !x->back().is_number()) return {};
  const int64_t k = x->back().number();
  const bool rows = s->size() == 4 && IsNumber((*s)[0], 1) && IsNumber((*s)[2], k) && IsNumber((*s)[3], 1);
  if (!rows || !CanReshape(*x, *s) || !IsFilledWith(g, n.input(1), 1) || !IsFilledWith(g, n.input(2), 0)) return {};
  const bool own = IsMeanOfChannels(g, n.input(3), r) && IsVarianceOfChannels(g, n.input(4), r, k);
  return own ? view->input(0) : ValueId{};
}

ValueId MeanOfRows(Rewriter& rw, ValueId x) {
  Type type = TypeOf(rw.graph(), x);
  type.shape->back() = Dim(1);
  return Make(rw, Op::kReduceMean, {x, MakeInts(rw, {-1})}, {{"keepdims", int64_t{1}}}, type);
}

ValueId NormOfRows(Rewriter& rw, ValueId x, float epsilon) {
  const Type type = TypeOf(rw.graph(), x);
  const ValueId d = Make(rw, Op::kSub, {x, MeanOfRows(rw, x)}, {}, type);
  const ValueId variance = MeanOfRows(rw, Make(rw, Op::kMul, {d, d}, {}, type));
  const Type column = TypeOf(rw.graph(), variance);
  const ValueId small = rw.Constant(Tensor::ScalarF32(epsilon), "epsilon");
  const ValueId root = Make(rw, Op::kSqrt, {Make(rw, Op::kAdd, {variance, small}, {}, column)}, {}, column);
  return Make(rw, Op::kDiv, {d, root}, {}, type);
}

// n is x - ReduceMean(x, [-1]).
bool IsCentered(const Graph& g, const Node* n) {
  if (n == nullptr || n->op != Op::kSub) return false;
  const Node* mean = g.Producer(n->input(1));
  const int64_t rank = RankOf(g, n->input(0));
  return mean != nullptr && rank > 0 && mean->input(0) == n->input(0) &&
         ReducesAlong(g, *mean, Op::kReduceMean, rank - 1, rank);
}

// The x of which Where n centers all rows but those that it zeroes; invalid: it does not.
ValueId GuardedRows(const Graph& g, const Node& n) {
  const Node* d = g.Producer(n.input(2));
  if (!IsCentered(g, d) || !g.HasOneUse(n.input(2))) return {};
  const auto zero = ConstScalarBeside(g, n.input(1), n.input(2));
  const SymShape *c = ShapeOf(g, n.input(0)), *x = ShapeOf(g, d->input(0)), *y = ShapeOf(g, n.output());
  if (!zero || *zero != 0 || std::signbit(*zero) || c == nullptr || x == nullptr || y == nullptr) return {};
  const bool of_rows = c->empty() || IsNumber(c->back(), 1);
  return of_rows && ProvablyEqual(*x, *y) ? d->input(0) : ValueId{};
}

// The squares of which Cast n is the mean of each row, computed in double; invalid: it is not.
ValueId SquaresInDouble(const Graph& g, const Node& n) {
  const Node* mean = g.Producer(n.input(0));
  const int64_t rank = mean == nullptr ? -1 : RankOf(g, mean->input(0));
  if (rank < 1 || !ReducesAlong(g, *mean, Op::kReduceMean, rank - 1, rank)) return {};
  const Node* wide = g.Producer(mean->input(0));
  if (wide == nullptr || wide->op != Op::kCast || DTypeOf(g, wide->output()) != DType::kF64) return {};
  const Node* square = g.Producer(wide->input(0));
  const bool squares = square != nullptr && square->op == Op::kMul && square->input(0) == square->input(1);
  return squares && DTypeOf(g, square->output()) == DType::kF32 && DTypeOf(g, n.output()) == DType::kF32
             ? square->output()
             : ValueId{};
}

bool RowNorm(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  if (n.op != Op::kBatchNormalization && n.op != Op::kWhere && n.op != Op::kCast) return false;
  const ValueId x = n.op == Op::kWhere  ? GuardedRows(g, n)
                    : n.op == Op::kCast ? SquaresInDouble(g, n)
                                        : RowsOfBatchNorm(g, n);
  if (!x.valid()) return false;
  rw.At(id, {id});
  if (n.op == Op::kCast) {
    ReplaceNode(rw, id, MeanOfRows(rw, x));
  } else if (n.op == Op::kWhere) {
    const Type type = TypeOf(g, x);
    const ValueId z = Make(rw, Op::kWhere, {n.input(0), n.input(1), x}, {}, type);
    ReplaceNode(rw, id, Make(rw, Op::kSub, {z, MeanOfRows(rw, z)}, {}, type));
  } else {
    const ValueId y = NormOfRows(rw, x, n.attrs.Float("epsilon", 1e-5f));
    ReplaceNode(rw, id, MakeReshape(rw, y, *ShapeOf(g, n.output())));
  }
  return true;
}

}  // namespace

Result<bool> RowNorms(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "row_norms");
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id)) RowNorm(rw, id);
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
