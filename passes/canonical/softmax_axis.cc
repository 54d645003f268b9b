// softmax_axis: a Softmax of attention scores over their last axis, where an einsum left another there ("nlhd,nshd->nlsh").
// Before: Softmax(Mul(Transpose(MatMul(q, kT), n l s h), 0.25), axis s)   After: Transpose(Softmax(Mul(MatMul(q, kT), 0.25)), n l s h)
// Before: Softmax(Add(Transpose(MatMul, p), mask [n,l,s,1]), axis s)      After: Transpose(Softmax(Add(MatMul, Transpose(mask, 1/p))), p)
// Before: Transpose(Reshape(Softmax(Mul(MatMul(k, qT), 0.25), axis -2)))  After: the Softmax over the last axis, between two Transposes (tf2onnx)
// The same exponentials are summed: exact but for the order in which a Softmax sums.
// Refused: scores that others read, what does not come of a product of two activations, and a Softmax over rows that nothing turns back.
#include <algorithm>
#include <numeric>
#include <ranges>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

struct Step {
  NodeId node;
  size_t input;  // the one that the scores come by
};

constexpr size_t kMostSteps = 6;

bool IsProduct(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  return n != nullptr && n->op == Op::kMatMul && g.HasOneUse(v) && !IsConstantLike(g, n->input(1)) &&
         !IsDequantized(g, n->input(0)) && !IsDequantized(g, n->input(1));
}

// One number for all, of any rank.
bool IsSingle(const Graph& g, ValueId v) {
  const SymShape& s = *ShapeOf(g, v);
  return std::all_of(s.begin(), s.end(), [](const Dim& d) { return IsNumber(d, 1); });
}

// The steps from v up to a product or its Transpose, the last first, and what they begin at.
ValueId ScoresAbove(const Graph& g, ValueId v, int64_t rank, std::vector<Step>& steps) {
  const Node* n = g.Producer(v);
  if (n == nullptr || !g.HasOneUse(v) || RankOf(g, v) != rank) return {};
  if (n->op == Op::kTranspose) return IsProduct(g, n->input(0)) ? v : ValueId{};
  if (IsProduct(g, v)) return v;
  if (!IsElementwise(n->op) || steps.size() == kMostSteps) return {};
  for (const ValueId input : n->inputs) {
    if (!input.valid() || ShapeOf(g, input) == nullptr || RankOf(g, input) > rank) return {};
  }
  for (size_t i = 0; i < n->inputs.size(); ++i) {
    steps.push_back({g.value(v).producer, i});
    if (const ValueId found = ScoresAbove(g, n->input(i), rank, steps); found.valid()) return found;
    steps.pop_back();
  }
  return {};
}

// Whether a Transpose of the last two axes alone reads v, through views that keep these, or a product from the left: v^T p.
bool IsTurnedBack(const Graph& g, ValueId v) {
  for (size_t i = 0; i < kMostSteps && g.HasOneUse(v); ++i) {
    const Node& n = g.node(g.value(v).uses.front().node);
    const SymShape *in = ShapeOf(g, v), *out = ShapeOf(g, n.output());
    if (in == nullptr || out == nullptr || in->size() < 2 || out->size() < 2) return false;
    if (n.op == Op::kMatMul) return n.input(1) == v && n.input(0) != v && !IsConstantLike(g, n.input(0));
    if (n.op == Op::kTranspose) return PermOf(n, std::ssize(*in)) == LastTwoSwapped(std::ssize(*in));
    const bool keeps = ProvablyEqual(in->back(), out->back()) && ProvablyEqual(in->end()[-2], out->end()[-2]);
    if (!IsReshapeLike(n.op) || !keeps) return false;
    v = n.output();
  }
  return false;
}

// What stands beside the scores, with its axes in another order; of lower rank it gets dims of 1 in front first.
ValueId Ordered(Rewriter& rw, ValueId v, const Ints& perm) {
  const Graph& g = rw.graph();
  if (IsSingle(g, v)) return v;
  SymShape shape = *ShapeOf(g, v);
  if (const size_t missing = perm.size() - shape.size(); missing > 0) {
    Ints axes(missing);
    std::iota(axes.begin(), axes.end(), 0);
    shape.insert(shape.begin(), missing, Dim(1));
    v = Make(rw, Op::kUnsqueeze, {v, MakeInts(rw, std::move(axes))}, {}, Type{DTypeOf(g, v), shape});
  }
  return MakeTranspose(rw, v, perm);
}

bool SoftmaxAxisNode(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const int64_t rank = n.op == Op::kSoftmax ? RankOf(g, n.output()) : 0;
  if (rank < 2) return false;
  const int64_t axis = n.attrs.Int("axis", -1), at = axis < 0 ? axis + rank : axis;
  std::vector<Step> steps;
  const ValueId scores = at == rank - 1 ? ValueId{} : ScoresAbove(g, n.input(0), rank, steps);
  if (!scores.valid()) return false;
  const Node above = *g.Producer(scores);
  const bool product = above.op == Op::kMatMul;  // of keys and queries
  if (product && !IsTurnedBack(g, n.output())) return false;
  const Ints perm = product ? LastTwoSwapped(rank) : PermOf(above, rank);
  if (perm[static_cast<size_t>(at)] != rank - 1) return false;
  Ints back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const auto type = [&](ValueId v) { return Type{DTypeOf(g, v), Permuted(*ShapeOf(g, v), back)}; };
  rw.At(id, {id});
  ValueId v = product ? MakeTranspose(rw, scores, back) : above.input(0);
  for (const Step& step : std::views::reverse(steps)) {
    const Node old = g.node(step.node);
    std::vector<ValueId> inputs = old.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = i == step.input ? v : Ordered(rw, inputs[i], back);
    }
    v = Make(rw, old.op, std::move(inputs), old.attrs, type(old.output()));
  }
  v = Make(rw, Op::kSoftmax, {v}, {{"axis", int64_t{-1}}}, type(n.output()));
  ReplaceNode(rw, id, MakeTranspose(rw, v, perm));
  return true;
}

}  // namespace

Result<bool> SoftmaxAxis(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "softmax_axis");
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id)) SoftmaxAxisNode(rw, id);
  }
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("softmax_axis made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
