// softmax_axis: a Softmax of attention scores over their last axis, where an einsum left another there ("nlhd,nshd->nlsh").
// Before: Softmax(Mul(Transpose(MatMul(q, kT), n l s h), 0.25), axis s)   After: Transpose(Softmax(Mul(MatMul(q, kT), 0.25)), n l s h)
// Before: Softmax(Add(Transpose(MatMul, p), mask [n,l,s,1]), axis s)      After: Transpose(Softmax(Add(MatMul, Transpose(mask, 1/p))), p)
// The same exponentials are summed: exact but for the order in which a Softmax sums.
// Refused: scores that others read, a mask of lower rank, and what does not come of a product of two activations.
#include <algorithm>
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

bool CanTurn(const Graph& g, ValueId v, int64_t rank) {
  const SymShape* s = ShapeOf(g, v);
  return s != nullptr &&
         (std::ssize(*s) == rank || std::all_of(s->begin(), s->end(), [](const Dim& d) { return IsNumber(d, 1); }));
}

// The steps from v up to the Transpose of a product, the last first, and that Transpose.
NodeId TransposeAbove(const Graph& g, ValueId v, int64_t rank, std::vector<Step>& steps) {
  const Node* n = g.Producer(v);
  if (n == nullptr || !g.HasOneUse(v) || RankOf(g, v) != rank) return {};
  if (n->op == Op::kTranspose) return IsProduct(g, n->input(0)) ? g.value(v).producer : NodeId{};
  if (!IsElementwise(n->op) || steps.size() == kMostSteps) return {};
  for (const ValueId input : n->inputs) {
    if (!input.valid() || !CanTurn(g, input, rank)) return {};
  }
  for (size_t i = 0; i < n->inputs.size(); ++i) {
    steps.push_back({g.value(v).producer, i});
    if (const NodeId found = TransposeAbove(g, n->input(i), rank, steps); found.valid()) return found;
    steps.pop_back();
  }
  return {};
}

bool SoftmaxAxisNode(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const int64_t rank = n.op == Op::kSoftmax ? RankOf(g, n.output()) : 0;
  if (rank < 2) return false;
  const int64_t axis = n.attrs.Int("axis", -1), at = axis < 0 ? axis + rank : axis;
  std::vector<Step> steps;
  const NodeId transpose = at == rank - 1 ? NodeId{} : TransposeAbove(g, n.input(0), rank, steps);
  if (!transpose.valid()) return false;
  const Ints perm = PermOf(g.node(transpose), rank);
  if (perm[static_cast<size_t>(at)] != rank - 1) return false;
  Ints back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const auto type = [&](ValueId v) { return Type{DTypeOf(g, v), Permuted(*ShapeOf(g, v), back)}; };
  rw.At(id, {id});
  ValueId v = g.node(transpose).input(0);
  for (const Step& step : std::views::reverse(steps)) {
    const Node old = g.node(step.node);
    std::vector<ValueId> inputs = old.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i == step.input) {
        inputs[i] = v;
      } else if (RankOf(g, inputs[i]) == rank) {
        inputs[i] = MakeTranspose(rw, inputs[i], back);
      }
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
