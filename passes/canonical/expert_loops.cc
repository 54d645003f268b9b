// expert_loops: a sum over experts, each computed by nodes of its own, becomes one product with the matrices of the chosen ones.
// Before: y_1 s_1 + y_2 s_2 + .. + y_E s_E          y_e = f(x; constants of e), s_e [..,1] the share of e, 0 where a token did not choose it
// Before: ReduceSum(Concat(y_1, .., y_E) s)         the same of a stack, also as a product with s [..,E,1]
// Before: zeros + Scatter(tokens_1, y_1 s_1) + ..   y_e = f(x[tokens_e]), tokens_e of a NonZero: the loops of transformers and Optimum
// After:  ReduceSum(f(x; constants[index]) shares)  index, shares [..,k] the best of each token, x [..,1,1,K] expanded to k
// f is made of products, biases, elementwise ops and parts along the last axis. As Gather and MatMul on one tensor for each kind of weight, every
// recipe takes the experts as it takes those that arrive so (expert_columns.h), and a run reads the weights of the chosen alone.
// Not bit-exact: terms are summed in another order, and those of share 0 not at all, so that an infinite one is no NaN.
// Untouched: where an expert below the number that the router chooses among is missing or differs in more than its constants.
#include <algorithm>
#include <utility>

#include "octavo/ir/infer.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/expert_bodies.h"
#include "octavo/passes/canonical/expert_choice.h"

namespace octavo::passes::canonical {

namespace {

struct Term {
  ValueId y;  // of the expert, not multiplied by its share yet
  Choice choice;
};
struct Sum {
  NodeId last;
  std::vector<Term> terms;      // by expert
  std::vector<ValueId> others;  // what else was added
};

// y and share of a product.
std::optional<Term> TermAt(const Graph& g, ValueId v, std::optional<Choice> (*share)(const Graph&, ValueId)) {
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op != Op::kMul || n->inputs.size() != 2) return {};
  for (size_t i = 0; i < 2; ++i) {
    if (const auto c = share(g, n->input(1 - i))) return Term{n->input(i), *c};
  }
  return {};
}

// What Scatter adds to a sum, where it writes whole rows at the tokens of one expert.
std::optional<Term> ScatteredTerm(const Graph& g, const Node& n) {
  ValueId tokens = n.input(1);
  if (n.op == Op::kScatterElements) {
    const Node* expand = g.Producer(tokens);
    if (expand == nullptr || expand->op != Op::kExpand || n.attrs.Int("axis", 0) != 0) return {};
    tokens = expand->input(0);
  }
  const auto term = TermAt(g, n.input(2), ShareOfPlaces);
  return term && RankOf(g, n.output()) == 2 && AreTokensOf(g, tokens, term->choice.places) ? term : std::nullopt;
}

bool IsScatter(const Node& n) { return n.op == Op::kScatterElements || n.op == Op::kScatterND; }
bool Adds(const Node& n) { return n.attrs.Str("reduction", "none") == "add"; }

// Nobody else reads v but for its shape, of which zeros are made.
bool IsReadOnce(const Graph& g, ValueId v) {
  const auto& uses = g.value(v).uses;
  return !g.IsGraphOutput(v) &&
         std::ranges::count_if(uses, [&](const ir::Use& u) { return g.node(u.node).op != Op::kShape; }) == 1;
}

// The stack [..,E,N] and the shares [..,E] that v sums over E: ReduceSum(stack shares) or MatMul(stack turned, shares).
std::pair<const Node*, ValueId> StackAt(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr) return {};
  const Node* made = g.Producer(n->input(0));
  const int64_t rank = RankOf(g, n->input(0));
  if (made == nullptr || rank < 3) return {};
  const auto axes = ConstInts(g, n->input(1));
  const auto stack = [&](ValueId of, ValueId shares) -> std::pair<const Node*, ValueId> {
    const Node *s = g.Producer(of), *wide = g.Producer(shares);
    if (s == nullptr || s->op != Op::kConcat || wide == nullptr || wide->op != Op::kUnsqueeze) return {};
    return AxesOf(g, *wide) == Ints{rank - 1} ? std::pair(s, wide->input(0)) : std::pair<const Node*, ValueId>();
  };
  if (n->op == Op::kReduceSum && made->op == Op::kMul) {
    if (n->attrs.Int("keepdims", 1) != 0 || (axes != Ints{-2} && axes != Ints{rank - 2})) return {};
    const auto found = stack(made->input(0), made->input(1));
    return found.first != nullptr ? found : stack(made->input(1), made->input(0));
  }
  if (n->op != Op::kSqueeze || made->op != Op::kMatMul || (axes != Ints{-1} && axes != Ints{rank - 1})) return {};
  const Node* turned = g.Producer(made->input(0));
  const bool flip = turned != nullptr && turned->op == Op::kTranspose && PermOf(*turned, rank) == LastTwoSwapped(rank);
  return flip ? stack(turned->input(0), made->input(1)) : std::pair<const Node*, ValueId>();
}

// The terms of a sum over a stack.
std::vector<Term> StackedTerms(const Graph& g, ValueId v) {
  const auto [stack, shares] = StackAt(g, v);
  const auto c = stack != nullptr ? SharesOfAll(g, shares) : std::nullopt;
  const int64_t rank = c ? RankOf(g, stack->output()) : 0;
  if (!c || (stack->attrs.Int("axis", 0) != rank - 2 && stack->attrs.Int("axis", 0) != -2)) return {};
  std::vector<Term> terms;
  for (const ValueId one : stack->inputs) {
    const Node* wide = g.Producer(one);
    if (wide == nullptr || wide->op != Op::kUnsqueeze || AxesOf(g, *wide) != Ints{rank - 2}) return {};
    terms.push_back({wide->input(0), *c});
    terms.back().choice.expert = static_cast<int64_t>(terms.size()) - 1;
  }
  return terms;
}

// One operand of a sum.
void TakeOperand(const Graph& g, ValueId v, Sum& sum) {
  const Node* n = g.Producer(v);
  std::optional<Term> term = TermAt(g, v, ShareOfTokens);
  if (!term && n != nullptr && IsScatter(*n) && IsZeros(g, n->input(0))) term = ScatteredTerm(g, *n);
  if (term && IsReadOnce(g, v)) return sum.terms.push_back(*term);
  if (!IsZeros(g, v)) sum.others.push_back(v);
}

// Through a chain of sums that nobody else reads, from its last.
Sum SumAt(const Graph& g, NodeId last) {
  Sum sum{.last = last, .terms = StackedTerms(g, g.node(last).output()), .others = {}};
  if (!sum.terms.empty()) return sum;
  std::vector<ValueId> open{g.node(last).output()};
  while (!open.empty()) {  // its operands, of which the last is looked at first
    const ValueId v = open.back();
    open.pop_back();
    const Node* n = g.Producer(v);
    const bool inner = n != nullptr && (v == g.node(last).output() || IsReadOnce(g, v));
    const std::optional<Term> scattered = inner && IsScatter(*n) && Adds(*n) ? ScatteredTerm(g, *n) : std::nullopt;
    if (scattered) {
      sum.terms.push_back(*scattered);
      open.push_back(n->input(0));
    } else if (inner && n->op == Op::kAdd) {
      open.insert(open.end(), {n->input(1), n->input(0)});
    } else {
      TakeOperand(g, v, sum);
    }
  }
  std::ranges::sort(sum.terms, {}, [](const Term& t) { return t.choice.expert; });
  return sum;
}

// A scatter may write a part of its rows or columns.
bool HasRowsOfIndex(const Graph& g, const Sum& sum) {
  const SymShape* y = ShapeOf(g, sum.terms.front().y);
  if (y == nullptr || y->empty() || ShapeOf(g, g.node(sum.last).output()) == nullptr) return false;
  SymShape all = *ShapeOf(g, sum.terms.front().choice.index);
  all.back() = y->back();
  return ProvablyEqual(*ShapeOf(g, g.node(sum.last).output()), all);
}

// One term of each expert, all of one choice.
bool IsWhole(const Graph& g, const Sum& sum) {
  if (sum.terms.size() < 2) return false;
  const Choice& first = sum.terms.front().choice;
  for (size_t e = 0; e < sum.terms.size(); ++e) {
    const Choice& c = sum.terms[e].choice;
    const bool same = c.index == first.index && c.shares == first.shares && c.places.valid() == first.places.valid();
    if (!same || c.expert != static_cast<int64_t>(e)) return false;
  }
  return static_cast<int64_t>(sum.terms.size()) == ExpertsOf(g, first.index) && HasRowsOfIndex(g, sum);
}

bool IsAdding(const Node& n) { return n.op == Op::kAdd || (IsScatter(n) && Adds(n)); }

// No longer sum has it as its part.
bool IsLast(const Graph& g, NodeId id) {
  const ValueId v = g.node(id).output();
  if (!IsReadOnce(g, v) || (g.node(id).op != Op::kAdd && !IsScatter(g.node(id)))) return true;
  const auto use =
      std::ranges::find_if(g.value(v).uses, [&](const ir::Use& u) { return g.node(u.node).op != Op::kShape; });
  const Node& reader = g.node(use->node);
  return !IsAdding(reader) || (use->slot != 0 && IsScatter(reader));
}

// y [..,k,1,N] times shares [..,k], and what else was added.
ValueId Weighed(Rewriter& rw, const Choice& c, ValueId y, const std::vector<ValueId>& others) {
  const int64_t rank = RankOf(rw.graph(), c.index);
  const ValueId rows = rw.Create(Op::kSqueeze, {y, MakeInts(rw, {rank})});
  const ValueId shares = rw.Create(Op::kUnsqueeze, {c.shares, MakeInts(rw, {rank})});
  const ValueId product = rw.Create(Op::kMul, {rows, shares});
  ValueId sum = rw.Create(Op::kReduceSum, {product, MakeInts(rw, {rank - 1})}, {{"keepdims", int64_t{0}}});
  for (const ValueId v : others) sum = rw.Create(Op::kAdd, {sum, v});
  return sum;
}

}  // namespace

Result<bool> ExpertLoops(Graph& graph, PassRun&) {
  std::vector<NodeId> last;
  bool chooses = false;
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    chooses = chooses || n.op == Op::kTopK;
    const bool sums = IsAdding(n) || n.op == Op::kReduceSum || n.op == Op::kSqueeze;
    if (sums && IsLast(graph, id)) last.push_back(id);
  }
  if (!chooses) return false;
  OCTAVO_TRY([[maybe_unused]] const ir::Inference before, ir::Inference::Run(graph));
  Rewriter rw(graph, "expert_loops");
  for (NodeId id : last) {
    const Sum sum = SumAt(graph, id);
    if (!IsWhole(graph, sum)) continue;
    std::vector<ValueId> ys;
    std::vector<NodeId> places;
    for (const Term& t : sum.terms) ys.push_back(t.y), places.push_back(t.choice.places);
    const Choice& c = sum.terms.front().choice;
    ExpertBodies bodies(graph, c.index, std::move(places));
    if (!bodies.Plan(ys)) continue;
    rw.At(id, {id});
    ReplaceNode(rw, id, Weighed(rw, c, bodies.Build(rw), sum.others));
  }
  if (!rw.changed()) return false;
  OCTAVO_TRY([[maybe_unused]] const ir::Inference after, ir::Inference::Run(graph));
  return true;
}

}  // namespace octavo::passes::canonical
