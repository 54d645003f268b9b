// renormalized: probabilities that are masked behind the Softmax, and divided by what is left of a row, are those of a masked Softmax.
// Before: w = Mul(Softmax(s), Cast(m)) or Where(m, Exp(s), 0);  Div(w, ReduceSum(w))           After: p = Softmax(Where(m, s, -inf))
// Before: the same with Where(ReduceSum(w) > 0, ReduceSum(w), 1), and Where(.. > 0, that, 0) behind it (jax2onnx)
// After:  Where(IsNaN(p), 0, p), which is 0 as well where a row has nothing left
// Exact in real numbers; in floats a hidden key whose score is 100 above the others no longer rounds these to 0.
// In 16 bits, too, where probabilities that `widen` computes in f32 are cast back before the mask: then the Cast stands behind.
// Refused: masks that are no truth values, and probabilities that others read.
#include <algorithm>
#include <cmath>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

bool IsHalfOrSingle(DType d) { return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16; }

bool IsZerosAndOnes(const Graph& g, ValueId v) {
  const Tensor* t = g.ConstantOf(v);
  if (t == nullptr || !IsHalfOrSingle(t->dtype())) return false;
  for (int64_t i = 0; i < t->size(); ++i) {
    if (const double x = t->GetDouble(i); x != 0.0 && x != 1.0) return false;
  }
  return true;
}

// w: what is left of probabilities, or of exponentials, where the mask is true.
struct Masked {
  ValueId scores, mask;
};

// Of x - ReduceMax(..), x: what is subtracted of a whole row drops out of the quotient.
ValueId WithoutMaximum(const Graph& g, ValueId v) {
  const Node* sub = g.Producer(v);
  if (sub == nullptr || sub->op != Op::kSub || !g.IsFrom(sub->input(1), Op::kReduceMax)) return v;
  const SymShape* top = ShapeOf(g, sub->input(1));
  return top != nullptr && !top->empty() && IsNumber(top->back(), 1) ? sub->input(0) : v;
}

// What v was in f32 before it was cast to 16 bits; else v.
ValueId Widest(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  const bool narrowed = n != nullptr && n->op == Op::kCast && DTypeOf(g, n->input(0)) == DType::kF32 &&
                        IsHalfOrSingle(DTypeOf(g, v)) && g.HasOneUse(n->input(0));
  return narrowed ? n->input(0) : v;
}

std::optional<Masked> ReadMasked(const Graph& g, ValueId w) {
  const Node* n = g.Producer(w);
  if (n == nullptr || !IsHalfOrSingle(DTypeOf(g, w)) || g.IsGraphOutput(w)) return {};
  const bool where = n->op == Op::kWhere && ConstScalar(g, n->input(2)) == 0.0;
  for (const size_t slot : {0u, 1u}) {
    const ValueId other = n->input(1 - slot), kept = Widest(g, n->input(slot));
    const Node* cast = n->op == Op::kMul ? g.Producer(other) : nullptr;
    const bool of_numbers = n->op == Op::kMul && IsZerosAndOnes(g, other);
    const ValueId mask = where                                      ? n->input(0)
                         : of_numbers                               ? other
                         : cast != nullptr && cast->op == Op::kCast ? cast->input(0)
                                                                    : ValueId{};
    const Node* p = g.Producer(kept);
    if (p == nullptr || !g.HasOneUse(kept) || !g.HasOneUse(n->input(slot)) ||
        (DTypeOf(g, mask) != DType::kBool && !of_numbers))
      continue;
    const int64_t rank = RankOf(g, kept), axis = p->attrs.Int("axis", -1);
    const bool last = p->op == Op::kSoftmax && (axis == -1 || axis == rank - 1);
    if ((!last && p->op != Op::kExp) || rank < 1 || RankOf(g, w) != rank || RankOf(g, mask) > rank) continue;
    const ValueId scores = p->op == Op::kExp ? WithoutMaximum(g, p->input(0)) : p->input(0);
    if (SameShape(g, scores, kept) && ProvablyEqual(ShapeOf(g, w)->back(), ShapeOf(g, kept)->back()))
      return Masked{scores, mask};
  }
  return {};
}

// sum > 0
bool AsksWhetherLeft(const Graph& g, ValueId v, ValueId sum) {
  const Node* n = g.Producer(v);
  return n != nullptr && n->op == Op::kGreater && n->input(0) == sum && ConstScalar(g, n->input(1)) == 0.0;
}

bool RenormalizedNode(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const ValueId w = n.op == Op::kDiv ? n.input(0) : ValueId{};
  const auto masked = w.valid() && !g.IsGraphOutput(w) ? ReadMasked(g, Widest(g, w)) : std::nullopt;
  if (!masked || g.value(w).uses.size() != 2) return false;
  const Node* by = g.Producer(n.input(1));
  const bool guarded = by != nullptr && by->op == Op::kWhere && AsksWhetherLeft(g, by->input(0), by->input(1)) &&
                       ConstScalar(g, by->input(2)) == 1.0;
  const ValueId sum = guarded ? by->input(1) : n.input(1);
  const Node* reduce = g.Producer(sum);
  const int64_t rank = RankOf(g, w);
  if (reduce == nullptr || reduce->input(0) != w || !ReducesAlong(g, *reduce, Op::kReduceSum, rank - 1, rank))
    return false;
  rw.At(id, {id, g.value(w).producer});
  const DType dtype = DTypeOf(g, masked->scores), given = DTypeOf(g, w);
  const Type type{dtype, TypeOf(g, w).shape};
  const auto number = [&](float x) {
    const Type scalar{dtype, SymShape{}};
    const ValueId v = rw.Constant(Tensor::ScalarF32(x));
    return dtype == DType::kF32 ? v : Make(rw, Op::kCast, {v}, {{"to", static_cast<int64_t>(dtype)}}, scalar);
  };
  const ValueId least = number(-INFINITY);
  const Type truth{DType::kBool, *ShapeOf(g, masked->mask)};
  const ValueId mask = DTypeOf(g, masked->mask) == DType::kBool
                           ? masked->mask
                           : Make(rw, Op::kCast, {masked->mask}, {{"to", int64_t{9}}}, truth);
  ValueId p = Make(rw, Op::kWhere, {mask, masked->scores, least}, {}, type);
  p = Make(rw, Op::kSoftmax, {p}, {{"axis", int64_t{-1}}}, type);
  NodeId end = id;
  if (guarded) {
    const ValueId nothing = Make(rw, Op::kIsNaN, {p}, {}, Type{DType::kBool, type.shape});
    p = Make(rw, Op::kWhere, {nothing, number(0.0f), p}, {}, type);
    const ir::Use use = g.value(n.output()).uses.size() == 1 ? g.value(n.output()).uses[0] : ir::Use{id, 0};
    const Node& behind = g.node(use.node);  // a Where that says once more what a row is that has nothing left
    if (behind.op == Op::kWhere && use.slot == 1 && AsksWhetherLeft(g, behind.input(0), sum) &&
        ConstScalar(g, behind.input(2)) == 0.0)
      end = use.node;
  }
  if (dtype != given) p = Make(rw, Op::kCast, {p}, {{"to", static_cast<int64_t>(given)}}, TypeOf(g, w));
  ReplaceNode(rw, end, p);
  return true;
}

}  // namespace

Result<bool> Renormalized(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "renormalized");
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id)) RenormalizedNode(rw, id);
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
