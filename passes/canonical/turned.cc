// turned: products of attention that were computed transposed, the other way round (einsum of tf2onnx: K Q^T).
// Before: Softmax(Transpose(Reshape(Mul(MatMul(k, q^T), 0.25))))      After: Softmax(Reshape(Mul(MatMul(q, k^T), 0.25)))
// Before: MatMul(v^T, Transpose(p))                                   After: Transpose(MatMul(p, v))
// Every element is the same sum of the same products: exact but for the order in which a product sums.
// Refused: a Transpose of other axes than the last two, values between that others read but by a Softmax, and what is next to Q/DQ.
#include <algorithm>
#include <ranges>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMostSteps = 12;  // between the product, its Transpose and the Softmax

bool IsTurn(const Graph& g, const Node& n) {
  const int64_t rank = RankOf(g, n.output());
  return n.op == Op::kTranspose && rank >= 2 && PermOf(n, rank) == LastTwoSwapped(rank) &&
         DTypeOf(g, n.output()) == DType::kF32;
}

bool KeepsLastTwo(const Graph& g, const Node& n) {
  const SymShape *in = ShapeOf(g, n.input(0)), *out = ShapeOf(g, n.output());
  return IsReshapeLike(n.op) && in != nullptr && out != nullptr && in->size() >= 2 && out->size() >= 2 &&
         ProvablyEqual(in->back(), out->back()) && ProvablyEqual(in->end()[-2], out->end()[-2]);
}

// One number times or divided into all, at either side of a product.
bool IsScaled(const Graph& g, const Node& n) {
  return (n.op == Op::kMul || n.op == Op::kDiv) && ConstScalarBeside(g, n.input(1), n.input(0)).has_value();
}

bool EndsInSoftmax(const Graph& g, ValueId v) {
  for (int i = 0; i < kMostSteps; ++i) {
    if (!g.HasOneUse(v)) return false;
    const Node& n = g.node(g.value(v).uses.front().node);
    if (n.op == Op::kSoftmax) return true;
    if (!IsElementwise(n.op) && !IsReshapeLike(n.op)) return false;
    v = n.output();
  }
  return false;
}

// v goes to the next step alone, or to a Softmax of its own as well: attention of both ways from one product (LightGlue).
bool GoesOn(const Graph& g, ValueId v) {
  if (g.HasOneUse(v)) return true;
  const auto& uses = g.value(v).uses;
  return uses.size() == 2 && std::any_of(uses.begin(), uses.end(), [&](const ir::Use& use) {
           const Node& n = g.node(use.node);
           return n.op == Op::kSoftmax || (IsScaled(g, n) && EndsInSoftmax(g, n.output()));
         });
}

// The Transpose of scores goes up to their product, which takes its operands the other way round.
bool TurnScores(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  if (!IsTurn(g, g.node(id)) || !EndsInSoftmax(g, g.node(id).output())) return false;
  std::vector<NodeId> between;  // last first
  NodeId product;
  for (ValueId v = g.node(id).input(0); !product.valid(); v = g.node(between.back()).input(0)) {
    const Node* n = g.Producer(v);
    if (n == nullptr || !GoesOn(g, v) || between.size() == kMostSteps) return false;
    if (n->op == Op::kMatMul) {
      product = g.value(v).producer;
      break;
    }
    if (!KeepsLastTwo(g, *n) && !IsScaled(g, *n)) return false;
    between.push_back(g.value(v).producer);
  }
  const Node matmul = g.node(product);
  const int64_t rank = RankOf(g, matmul.output());
  for (const ValueId v : matmul.inputs) {
    if (rank < 2 || RankOf(g, v) != rank || IsConstantLike(g, v) || IsDequantized(g, v)) return false;
  }
  for (const NodeId step : between) {
    const SymShape *in = ShapeOf(g, g.node(step).input(0)), *out = ShapeOf(g, g.node(step).output());
    const auto turned = [](const SymShape& s) { return Permuted(s, LastTwoSwapped(static_cast<int64_t>(s.size()))); };
    if (IsReshapeLike(g.node(step).op) && !CanReshape(turned(*in), turned(*out))) return false;
  }
  rw.At(id, {id, product});
  const auto turn = [&](ValueId v) { return MakeTranspose(rw, v, LastTwoSwapped(RankOf(g, v))); };
  const auto type = [&](ValueId v) {
    const Type t = TypeOf(g, v);
    return Type{t.dtype, Permuted(*t.shape, LastTwoSwapped(static_cast<int64_t>(t.shape->size())))};
  };
  ValueId v = Make(rw, Op::kMatMul, {turn(matmul.input(1)), turn(matmul.input(0))}, {}, type(matmul.output()));
  for (const NodeId step : std::views::reverse(between)) {
    const Node n = g.node(step);
    v = IsReshapeLike(n.op) ? MakeReshape(rw, v, *type(n.output()).shape)
                            : Make(rw, n.op, {v, n.input(1)}, n.attrs, type(n.output()));
  }
  ReplaceNode(rw, id, v);
  return true;
}

bool TurnValues(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Node* turned = n.op == Op::kMatMul ? g.Producer(n.input(1)) : nullptr;
  if (turned == nullptr || !IsTurn(g, *turned) || !g.HasOneUse(n.input(1))) return false;
  const Node* p = g.Producer(turned->input(0));
  if (p == nullptr || p->op != Op::kSoftmax || !g.HasOneUse(turned->input(0)) || IsDequantized(g, n.input(0)))
    return false;
  const int64_t rank = RankOf(g, n.output());
  if (RankOf(g, n.input(0)) != rank || RankOf(g, n.input(1)) != rank) return false;
  rw.At(id, {id});
  const SymShape out = *ShapeOf(g, n.output());
  const Ints perm = LastTwoSwapped(rank);
  const ValueId product = Make(rw, Op::kMatMul, {turned->input(0), MakeTranspose(rw, n.input(0), perm)}, {},
                               Type{DTypeOf(g, n.output()), Permuted(out, perm)});
  ReplaceNode(rw, id, MakeTranspose(rw, product, perm));
  return true;
}

}  // namespace

Result<bool> Turned(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "turned");
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id) && !TurnScores(rw, id) && graph.IsAlive(id)) TurnValues(rw, id);
  }
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("turned made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
