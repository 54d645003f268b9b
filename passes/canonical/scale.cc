// scale: one multiply on the attention scores.
// Before: MatMul(Mul(q, 0.42), Transpose(Mul(k, 0.42)))       After: Mul(MatMul(q, Transpose(k)), 0.1764)
// Before: Mul(Div(MatMul(q, kT), 8), 2)                       After: Mul(MatMul(q, kT), 0.25)
// Q and K then leave their projections unscaled, which quantization and the fused kernels want.
// Not bit-exact, and the only canonical pass that is not: the product of the scales is computed in double and rounded
// once, and the sum is scaled instead of its terms. Either way a score of head size K has a rounding error of at most
// (K + 2) * 2^-24 * scale * sum|q||k| to first order, so it changes by at most twice that.
// Only f32 (f16 scores might overflow without the scale), only where the scores reach a Softmax, only positive finite
// scalars, and never across Q/DQ: there the scale is part of what was quantized.
#include <cmath>
#include <format>
#include <utility>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxSteps = 8;  // ops between the score product and its Softmax: scale, mask, position bias, views

bool IsUsable(double s) { return std::isfinite(s) && s >= 0x1p-60 && s <= 0x1p60; }

// x * s or x / c with a scalar constant that does not widen x: x and s.
struct Scaled {
  ValueId x;
  double scale = 1;
};
std::optional<Scaled> AsScaled(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr || (n->op != Op::kMul && n->op != Op::kDiv) || DTypeOf(g, v) != DType::kF32) return {};
  for (size_t slot = 0; slot < (n->op == Op::kMul ? 2u : 1u); ++slot) {
    const auto c = ConstScalarBeside(g, n->input(1 - slot), n->input(slot));
    const double s = c ? (n->op == Op::kMul ? *c : 1.0 / *c) : 0.0;
    if (!c || !IsUsable(s)) continue;
    return Scaled{n->input(slot), s};
  }
  return {};
}

bool KeepsRowsApart(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kDiv:
    case Op::kSub:
    case Op::kWhere:
    case Op::kMax:
    case Op::kClip:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kConcat:
    case Op::kCast:
    case Op::kTanh:
      return true;
    default:
      return false;
  }
}

// Whether the scores end in a Softmax, through ops that keep rows apart.
bool ReachesSoftmax(const Graph& g, ValueId v, int steps) {
  std::vector<ValueId> front{v};
  for (; steps > 0 && !front.empty(); --steps) {
    std::vector<ValueId> next;
    for (ValueId x : front) {
      for (const ir::Use& u : g.value(x).uses) {
        const Node& n = g.node(u.node);
        if (n.op == Op::kSoftmax) return true;
        if (KeepsRowsApart(n.op) && next.size() < 8) next.push_back(n.output());
      }
    }
    front = std::move(next);
  }
  return false;
}

bool IsSeenThrough(Op op) { return op == Op::kTranspose || op == Op::kExpand || IsReshapeLike(op); }

// The product of the scales above v, through views; 0: there is none.
double ScaleAbove(const Graph& g, ValueId v, int depth) {
  const Node* n = g.Producer(v);
  if (n == nullptr || depth <= 0) return 0;
  if (const auto s = AsScaled(g, v)) {
    const double more = ScaleAbove(g, s->x, depth - 1);
    return s->scale * (more == 0 ? 1.0 : more);
  }
  return IsSeenThrough(n->op) ? ScaleAbove(g, n->input(0), depth - 1) : 0;
}

// v without the scales above it; the views between are made again on the unscaled value.
ValueId Unscaled(Rewriter& rw, ValueId v, int depth) {
  const Graph& g = rw.graph();
  if (ScaleAbove(g, v, depth) == 0) return v;
  if (const auto s = AsScaled(g, v)) return Unscaled(rw, s->x, depth - 1);
  const Node n = *g.Producer(v);
  std::vector<ValueId> inputs = n.inputs;
  inputs[0] = Unscaled(rw, inputs[0], depth - 1);
  return Make(rw, n.op, std::move(inputs), n.attrs, TypeOf(g, v));
}

bool IsQuantized(const Graph& g, ValueId v) {
  for (int depth = 0; depth < kMaxSteps && v.valid(); ++depth) {
    const Node* n = g.Producer(v);
    if (n == nullptr) return false;
    if (n->op == Op::kDequantizeLinear) return true;
    if (!IsSeenThrough(n->op)) return false;
    v = n->input(0);
  }
  return false;
}

bool IsPowerOfTwo(double s) {
  int exponent = 0;
  return std::frexp(s, &exponent) == 0.5;
}

// Multiplications of the scores by constants right behind the product: the last of them, and their product.
Scaled TrailingScales(const Graph& g, ValueId scores) {
  Scaled end{scores, 1};
  while (g.HasOneUse(end.x)) {
    const ValueId next = g.node(g.value(end.x).uses.front().node).output();
    const auto s = next.valid() ? AsScaled(g, next) : std::nullopt;
    if (!s || s->x != end.x) break;
    // What Tanh reads is divided by the cap: that has its own meaning.
    if (g.HasOneUse(next) && g.node(g.value(next).uses.front().node).op == Op::kTanh) break;
    end = {next, end.scale * s->scale};
  }
  return end;
}

bool ScaleNode(Rewriter& rw, NodeId id) {
  Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kMatMul || DTypeOf(g, n.output()) != DType::kF32) return false;
  if (IsConstantLike(g, n.input(0)) || IsConstantLike(g, n.input(1))) return false;
  if (!ReachesSoftmax(g, n.output(), kMaxSteps)) return false;
  const ValueId old_q = n.input(0), old_k = n.input(1), scores = n.output();
  const double of_q = ScaleAbove(g, old_q, kMaxSteps), of_k = ScaleAbove(g, old_k, kMaxSteps);
  const Scaled behind = TrailingScales(g, scores);
  const NodeId last = g.value(behind.x).producer;
  const double total = (of_q == 0 ? 1.0 : of_q) * (of_k == 0 ? 1.0 : of_k) * behind.scale;
  if (of_q == 0 && of_k == 0) {  // a single Mul by a constant is the form we want
    const bool one_mul = behind.x != scores && g.node(last).op == Op::kMul && g.node(last).input(0) == scores;
    if (behind.x == scores || one_mul) return false;
  }
  const float factor = static_cast<float>(total);
  if (!IsUsable(total)) return false;
  // A Q/DQ graph keeps its bits: x / 2^n is x * 2^-n, everything else stays as it is.
  const bool quantized = IsQuantized(g, old_q) || IsQuantized(g, old_k);
  if (quantized && !(of_q == 0 && of_k == 0 && g.node(last).input(0) == scores && IsPowerOfTwo(total))) return false;
  rw.At(id, {id});
  if (of_q != 0) rw.SetInput(id, 0, Unscaled(rw, old_q, kMaxSteps));
  if (of_k != 0) rw.SetInput(id, 1, Unscaled(rw, old_k, kMaxSteps));
  for (ValueId old : {old_q, old_k}) {
    if (g.IsAlive(old) && g.value(old).producer.valid()) rw.EraseDead(g.value(old).producer);
  }
  const NodeId next = g.node(id).next;  // the multiply stands right behind the product
  rw.At(next, behind.x == scores ? std::vector<NodeId>{id} : std::vector<NodeId>{id, last});
  const ValueId c = rw.Constant(Tensor::ScalarF32(factor));
  const ValueId y = Make(rw, Op::kMul, {scores, c}, {}, TypeOf(g, scores));
  rw.Replace(behind.x, y);
  if (behind.x == scores) {
    rw.SetInput(g.value(y).producer, 0, scores);  // Replace took this use along
  } else {
    rw.EraseDead(last);
  }
  return true;
}

}  // namespace

Result<bool> Scale(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "scale");
  int moved = 0;
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id)) moved += ScaleNode(rw, id) ? 1 : 0;
  }
  if (moved > 0) run.log.push_back(std::format("scale: {} score products scaled once, behind the product", moved));
  return moved > 0;
}

}  // namespace octavo::passes::canonical
