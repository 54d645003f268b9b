// mixtures: a product of a sum of probabilities and V is a sum of products, of which each is an attention.
// Before: MatMul(Sub(p1, Mul(p2, l)), v)                      After: Sub(MatMul(p1, v), Mul(MatMul(p2, v), l))     differential attention
// Before: MatMul(Add(Mul(p, a), bias constant), v)            After: Add(Mul(MatMul(p, v), a), MatMul(bias, v))    gated positions (ConViT)
// Before: MatMul(Mul(p, f [B,H,Sq,1]), v); the same of Div    After: Mul(MatMul(p, v), f)                          factors of heads or rows
// Before: MatMul(Gather(Reshape(p [B,2H,Sq,Sk], [B,H,2,Sq,Sk]), 0, axis 2), v)     After: Gather(Reshape(MatMul(p, v, each head twice)), 0, axis 2)
// Before: Div(x, ReduceSum(x)), x = Add(Mul(p1, a), Mul(p2, b))     After: Div(x, Add(a, b))                       rows of p sum to 1
// Rounding: each product is rounded by itself, and a row of probabilities sums to 1 but for its own rounding.
// Only f32, only where a Softmax of scores is among the terms and nobody else reads the probabilities; never next to Q/DQ.
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxSteps = 24;

// Whether v comes from a product of two values that both depend on the input, through what may stand between scores and their Softmax.
bool ComesFromScores(const Graph& g, ValueId v, int depth = kMaxSteps) {
  const Node* n = g.Producer(v);
  if (n == nullptr || depth <= 0) return false;
  switch (n->op) {
    case Op::kMatMul:
    case Op::kEinsum:
      return n->inputs.size() == 2 && !IsConstantLike(g, n->input(0)) && !IsConstantLike(g, n->input(1));
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kTanh:
    case Op::kTranspose:
      return ComesFromScores(g, n->input(0), depth - 1);
    case Op::kWhere:
      return ComesFromScores(g, n->input(1), depth - 1) || ComesFromScores(g, n->input(2), depth - 1);
    default:
      return IsReshapeLike(n->op) && ComesFromScores(g, n->input(0), depth - 1);
  }
}

bool IsLastSoftmax(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  const int64_t rank = RankOf(g, v), axis = n == nullptr ? 0 : n->attrs.Int("axis", -1);
  return n != nullptr && n->op == Op::kSoftmax && rank >= 3 && (axis == -1 || axis == rank - 1);
}

// One of the groups of heads of p [B,H*n,Sq,Sk]: Gather(Reshape(p, [B,H,n,Sq,Sk]), i, axis 2).
struct Part {
  ValueId p;
  NodeId reshape, gather;
};
std::optional<Part> PartOf(const Graph& g, ValueId v) {
  const Node* gather = g.Producer(v);
  const Node* reshape = gather != nullptr && gather->op == Op::kGather ? g.Producer(gather->input(0)) : nullptr;
  if (reshape == nullptr || reshape->op != Op::kReshape) return {};
  const ValueId p = reshape->input(0);
  const SymShape *from = ShapeOf(g, p), *five = ShapeOf(g, gather->input(0)), *index = ShapeOf(g, gather->input(1));
  if (from == nullptr || five == nullptr || index == nullptr || from->size() != 4 || five->size() != 5 ||
      !index->empty() || !ConstScalar(g, gather->input(1)))
    return {};
  const int64_t axis = gather->attrs.Int("axis", 0);
  const bool same = ProvablyEqual((*from)[0], (*five)[0]) && (*five)[1].is_number() && (*five)[2].is_number() &&
                    ProvablyEqual((*from)[2], (*five)[3]) && ProvablyEqual((*from)[3], (*five)[4]);
  if ((axis != 2 && axis != -3) || !same || !IsLastSoftmax(g, p) || g.IsGraphOutput(p)) return {};
  return Part{p, g.value(gather->input(0)).producer, g.value(v).producer};
}

// The factor has one number for a row, a head or all.
bool IsFactorOfRows(const Graph& g, ValueId f) {
  const SymShape* s = ShapeOf(g, f);
  return s != nullptr && DTypeOf(g, f) == DType::kF32 && (s->empty() || IsNumber(s->back(), 1));
}

// A sum of probabilities and constants, each with factors of rows, that nobody else reads: read once, then written as what is made of each.
class Mixture {
 public:
  explicit Mixture(const Graph& g) : g_(g) {}

  // Whether `v` is one; `own`: who reads it is known already.
  bool Read(ValueId v, bool own = false, int depth = kMaxSteps) {
    const Node* n = g_.Producer(v);
    if (n == nullptr || depth <= 0 || DTypeOf(g_, v) != DType::kF32 || ShapeOf(g_, v) == nullptr) return false;
    if (IsConstantLike(g_, v)) {
      constants_ = true;
      return depth < kMaxSteps;
    }
    if (!own && (!g_.HasOneUse(v) || g_.IsGraphOutput(v))) return false;
    if (IsLeaf(v)) {
      const auto part = PartOf(g_, v);
      scores_ = scores_ || ComesFromScores(g_, g_.Producer(part ? part->p : v)->input(0));
      return true;
    }
    if (n->op == Op::kMul || n->op == Op::kDiv) {
      const size_t slot = SlotOf(*n);
      return IsFactorOfRows(g_, n->input(1 - slot)) && SameShape(g_, n->input(slot), v) &&
             Read(n->input(slot), false, depth - 1);
    }
    if (n->op != Op::kAdd && n->op != Op::kSub) return false;
    for (const ValueId term : n->inputs) {  // a constant may have one batch for all
      const SymShape* s = ShapeOf(g_, term);
      if (s == nullptr || s->size() != ShapeOf(g_, v)->size() || !ProvablyEqual(s->back(), ShapeOf(g_, v)->back()) ||
          !(IsConstantLike(g_, term) || SameShape(g_, term, v)))
        return false;
    }
    return Read(n->input(0), false, depth - 1) && Read(n->input(1), false, depth - 1);
  }
  bool IsLeaf(ValueId v) const { return IsConstantLike(g_, v) || IsLastSoftmax(g_, v) || PartOf(g_, v); }
  bool has_scores() const { return scores_; }
  bool has_constants() const { return constants_; }

  // The product with the values.
  ValueId Times(Rewriter& rw, ValueId v, ValueId values, const Type& type) const {
    if (IsLeaf(v)) return Make(rw, Op::kMatMul, {v, values}, {}, type);
    const Node n = *g_.Producer(v);
    if (n.op == Op::kAdd || n.op == Op::kSub) {
      const ValueId left = Times(rw, n.input(0), values, type), right = Times(rw, n.input(1), values, type);
      return Make(rw, n.op, {left, right}, {}, type);
    }
    const size_t slot = SlotOf(n);
    const ValueId product = Times(rw, n.input(slot), values, type);
    return Make(rw, n.op, {product, n.input(1 - slot)}, {}, type);
  }

  // What the rows sum to.
  ValueId RowSums(Rewriter& rw, ValueId v) const {
    if (IsConstantLike(g_, v)) {
      SymShape rows = *ShapeOf(g_, v);
      rows.back() = Dim(1);
      return Make(rw, Op::kReduceSum, {v, MakeInts(rw, {-1})}, {{"keepdims", int64_t{1}}}, Type{DType::kF32, rows});
    }
    if (IsLeaf(v)) return rw.Constant(Tensor::ScalarF32(1.0f));
    const Node n = *g_.Producer(v);
    const bool sum = n.op == Op::kAdd || n.op == Op::kSub;
    const size_t slot = sum ? 0 : SlotOf(n);
    const ValueId left = RowSums(rw, n.input(slot)), right = sum ? RowSums(rw, n.input(1)) : n.input(1 - slot);
    SymShape shape = BroadcastShapes({ShapeOf(g_, left), ShapeOf(g_, right)});
    return Make(rw, n.op, {left, right}, {}, Type{DType::kF32, std::move(shape)});
  }

 private:
  // Of the probabilities in a product with a factor.
  size_t SlotOf(const Node& n) const { return n.op == Op::kMul && IsFactorOfRows(g_, n.input(0)) ? 1 : 0; }

  const Graph& g_;
  bool scores_ = false, constants_ = false;
};

// The product whose operand is a sum of probabilities, or probabilities with a factor.
bool SplitProduct(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const ValueId x = n.input(0), v = n.input(1);
  const SymShape *shape = ShapeOf(g, x), *values = ShapeOf(g, v);
  if (shape == nullptr || values == nullptr || values->size() != shape->size() || IsConstantLike(g, v) ||
      IsDequantized(g, v))
    return false;
  Mixture mixture(g);
  if (mixture.IsLeaf(x) || !mixture.Read(x) || !mixture.has_scores()) return false;
  for (size_t i = 0; mixture.has_constants() && i + 2 < shape->size(); ++i) {  // whose batch is then that of V
    if (!ProvablyEqual((*shape)[i], (*values)[i])) return false;
  }
  rw.At(id, {id, g.value(x).producer});
  ReplaceNode(rw, id, mixture.Times(rw, x, v, TypeOf(g, n.output())));
  return true;
}

// The product of one group of heads is that group of the products of all heads.
bool PartBehindProduct(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const auto part = PartOf(g, n.input(0));
  const ValueId v = n.input(1);
  const SymShape* values = ShapeOf(g, v);
  if (!part || !g.HasOneUse(n.input(0)) || values == nullptr || values->size() != 4 || IsDequantized(g, v) ||
      !ComesFromScores(g, g.Producer(part->p)->input(0)))
    return false;
  for (const ir::Use& use : g.value(part->p).uses) {  // what this makes of the other groups
    if (use.node != part->reshape && (g.node(use.node).op != Op::kMatMul || use.slot != 0)) return false;
  }
  const SymShape five = *ShapeOf(g, g.node(part->reshape).output()), p = *ShapeOf(g, part->p), vs = *values;
  if (!ProvablyEqual(vs[0], p[0]) || !ProvablyEqual(vs[1], five[1]) || !ProvablyEqual(vs[2], p[3])) return false;
  rw.At(id, {id, part->reshape, part->gather});
  const auto type = [](SymShape s) { return Type{DType::kF32, std::move(s)}; };
  const SymShape narrow{vs[0], vs[1], Dim(1), vs[2], vs[3]}, wide{vs[0], vs[1], five[2], vs[2], vs[3]},
      all{vs[0], p[1], vs[2], vs[3]}, out{p[0], p[1], p[2], vs[3]}, split{five[0], five[1], five[2], five[3], vs[3]};
  const Ints times{1, 1, five[2].number(), 1, 1};
  ValueId x = Make(rw, Op::kUnsqueeze, {v, MakeInts(rw, {2})}, {}, type(narrow));
  x = Make(rw, Op::kExpand, {x, MakeInts(rw, times)}, {}, type(wide));
  x = Make(rw, Op::kReshape, {x, MakeInts(rw, {0, p[1].number(), -1, vs[3].number()})}, {}, type(all));
  x = Make(rw, Op::kMatMul, {part->p, x}, {}, type(out));
  x = Make(rw, Op::kReshape, {x, MakeInts(rw, {0, five[1].number(), five[2].number(), -1, vs[3].number()})}, {},
           type(split));
  const Node gather = g.node(part->gather);
  ReplaceNode(rw, id, Make(rw, Op::kGather, {x, gather.input(1)}, gather.attrs, TypeOf(g, n.output())));
  return true;
}

// A mixture that is divided by the sum of its rows.
bool SumsOfRows(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const ValueId x = n.input(0);
  const int64_t rank = RankOf(g, x);
  if (rank < 3 || g.value(x).uses.size() != 2 || g.IsGraphOutput(x) || !g.HasOneUse(n.input(1)) ||
      g.IsGraphOutput(n.input(1)))
    return false;
  const Node* sum = g.Producer(n.input(1));
  if (sum != nullptr && sum->op == Op::kUnsqueeze && AxesOf(g, *sum) == Ints{rank - 1} && g.HasOneUse(sum->input(0)))
    sum = g.Producer(sum->input(0));
  if (sum == nullptr || sum->op != Op::kReduceSum || sum->input(0) != x) return false;
  const auto axes = sum->inputs.size() > 1 ? ConstInts(g, sum->input(1)) : std::nullopt;
  const SymShape* rows = ShapeOf(g, n.input(1));
  if ((axes != Ints{-1} && axes != Ints{rank - 1}) || rows == nullptr || static_cast<int64_t>(rows->size()) != rank ||
      !IsNumber(rows->back(), 1))
    return false;
  Mixture mixture(g);
  if (mixture.IsLeaf(x) || !mixture.Read(x, true) || !mixture.has_scores()) return false;
  rw.At(id, {id, g.value(n.input(1)).producer});
  const NodeId dead = g.value(n.input(1)).producer;
  rw.SetInput(id, 1, mixture.RowSums(rw, x));
  rw.EraseDead(dead);
  return true;
}

}  // namespace

Result<bool> Mixtures(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "mixtures");
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool changed = false;
    for (NodeId id : graph.NodesInOrder()) {
      if (!graph.IsAlive(id)) continue;
      const Op op = graph.node(id).op;
      if (op == Op::kDiv) changed = SumsOfRows(rw, id) || changed;
      if (op == Op::kMatMul) changed = SplitProduct(rw, id) || PartBehindProduct(rw, id) || changed;
    }
    if (!changed) break;
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
