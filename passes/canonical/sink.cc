// views, second part: a Reshape that only merges leading dims sinks below its user.
// Before: [b,s,K] -> Reshape [b*s,K] -> MatMul W -> Add bias -> Reshape [b,s,N]                        (Conv1D, Gemm)
// After:  [b,s,K] -> MatMul W -> Add bias
// Before: q [b,h,s,d] -> Reshape [b*h,s,d], k likewise, MatMul [b*h,s,t] -> Reshape [b,h,s,t]          (torch.bmm)
// After:  MatMul(q, k) [b,h,s,t]
// A DequantizeLinear per tensor between the Reshape and the op is seen through.
// Every element is computed by the same operations in the same order: same bits. Where nothing undoes the Reshape
// further down, it merely stands lower, which costs nothing: it moves no data.
#include "octavo/passes/canonical/sink.h"

#include <algorithm>
#include <utility>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

struct Merge {
  ValueId source;           // in front of the Reshape
  size_t kept = 0;          // trailing dims that the Reshape leaves alone
  NodeId dequantize;        // valid: a DequantizeLinear per tensor behind it
  bool transposed = false;  // its last two dims change places behind it
};

// The producer of v where that is a DequantizeLinear with one scale.
NodeId PlainDequantize(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op != Op::kDequantizeLinear) return {};
  const Tensor* scale = g.ConstantOf(n->input(1));
  return scale != nullptr && scale->size() == 1 ? g.value(v).producer : NodeId{};
}

// v is a Reshape that merges two or more leading dims into one and leaves all others.
std::optional<Merge> MergeOf(const Graph& g, ValueId v) {
  if (const NodeId dq = PlainDequantize(g, v); dq.valid()) {
    auto inner = MergeOf(g, g.node(dq).input(0));
    if (!inner || inner->dequantize.valid()) return {};
    inner->dequantize = dq;
    return inner;
  }
  const Node* p = g.Producer(v);
  if (p == nullptr || p->op != Op::kReshape) return {};
  const SymShape* in = ShapeOf(g, p->input(0));
  const SymShape* out = ShapeOf(g, v);
  if (in == nullptr || out == nullptr || out->size() >= in->size() || out->size() < 2) return {};
  const size_t kept = out->size() - 1, shift = in->size() - out->size();
  Dim product = 1;
  for (size_t i = 0; i <= shift; ++i) product = product * (*in)[i];
  if (!ProvablyEqual(product, (*out)[0])) return {};
  for (size_t i = 1; i < out->size(); ++i) {
    if (!ProvablyEqual((*in)[shift + i], (*out)[i])) return {};
  }
  return Merge{p->input(0), kept, {}, false};
}

// The merge, then Transpose 0,2,1: K of batched attention.
std::optional<Merge> TransposedMergeOf(const Graph& g, ValueId v) {
  const NodeId dq = PlainDequantize(g, v);
  const Node* t = g.Producer(dq.valid() ? g.node(dq).input(0) : v);
  if (t == nullptr || t->op != Op::kTranspose || PermOf(*t, 3) != Ints{0, 2, 1}) return {};
  auto m = MergeOf(g, t->input(0));
  if (!m || m->kept != 2 || m->dequantize.valid()) return {};
  m->dequantize = dq;
  m->transposed = true;
  return m;
}

// The operand without its Reshape.
ValueId Operand(Rewriter& rw, const Merge& m) {
  const Graph& g = rw.graph();
  ValueId x = m.source;
  if (m.transposed) x = MakeTranspose(rw, x, LastTwoSwapped(RankOf(g, x)));
  if (!m.dequantize.valid()) return x;
  const Node n = g.node(m.dequantize);
  std::vector<ValueId> inputs = n.inputs;
  inputs[0] = x;
  Attrs attrs = n.attrs;
  attrs.Erase("axis");
  const Type type{DTypeOf(g, n.output()), TypeOf(g, x).shape};
  return Make(rw, Op::kDequantizeLinear, std::move(inputs), std::move(attrs), type);
}

// Shape in front of a Reshape whose result has the trailing dims of `out`.
SymShape Unmerged(const Graph& g, const Merge& m, const SymShape& out) {
  SymShape s = *ShapeOf(g, m.source);
  s.resize(s.size() - m.kept);
  s.insert(s.end(), out.begin() + 1, out.end());
  return s;
}

// The same dims in front. One batch may have two names: merged with the same number above 1 it is never repeated, so both are one size where the graph runs.
bool SameLeading(const Graph& g, const Merge& a, const Merge& b) {
  const SymShape &sa = *ShapeOf(g, a.source), &sb = *ShapeOf(g, b.source);
  if (a.kept != b.kept || sa.size() != sb.size()) return false;
  bool above_one = false;
  for (size_t i = 1; i + a.kept < sa.size(); ++i) {
    if (!ProvablyEqual(sa[i], sb[i])) return false;
    above_one = above_one || (sa[i].is_number() && sa[i].number() > 1);
  }
  return ProvablyEqual(sa[0], sb[0]) || (above_one && !sa[0].is_number() && !sb[0].is_number());
}

// What the op above the Reshape reads: per input a merge to undo, or the value as it is.
struct Input {
  ValueId value;
  std::optional<Merge> merge;
  std::optional<SymShape> split = {};  // to be split as the merge is undone
};
struct Plan {
  std::vector<Input> inputs;
  Merge merge;
  bool last_axis = false;  // the op has an axis, and it is the last
};

std::optional<Plan> PlanMatMul(const Graph& g, const Node& n) {
  const auto a = MergeOf(g, n.input(0));
  if (!a) return {};
  const Input left{n.input(0), a};
  if (IsConstantLike(g, n.input(1)) && RankOf(g, n.input(1)) == 2) return Plan{{left, {n.input(1), {}}}, *a};
  if (a->kept != 2) return {};
  auto b = MergeOf(g, n.input(1));
  if (!b) b = TransposedMergeOf(g, n.input(1));
  if (!b || !SameLeading(g, *a, *b)) return {};
  return Plan{{left, {n.input(1), b}}, *a};
}

// The result is split again right away, as the operand before its merge: others are then worth splitting too.
bool IsSplitAgain(const Graph& g, const Node& n, const Merge& m) {
  const SymShape* out = ShapeOf(g, n.output());
  if (out == nullptr || !g.HasOneUse(n.output())) return false;
  const Node& user = g.node(g.value(n.output()).uses.front().node);
  const SymShape* split = ShapeOf(g, user.output());
  return user.op == Op::kReshape && split != nullptr && ProvablyEqual(*split, Unmerged(g, m, *out));
}

// Shape of an operand [N,...] or [1,...] of merged rank with N parted as the merge has it.
std::optional<SymShape> SplitAs(const Graph& g, const Merge& m, ValueId v) {
  const SymShape *s = ShapeOf(g, v), &source = *ShapeOf(g, m.source);
  Dim product = 1;
  SymShape out(source.begin(), source.end() - static_cast<std::ptrdiff_t>(m.kept));
  for (const Dim& d : out) product = product * d;
  if (s == nullptr || s->size() != m.kept + 1 || (!ProvablyEqual((*s)[0], product) && !IsNumber((*s)[0], 1))) return {};
  if (IsNumber((*s)[0], 1)) std::fill(out.begin(), out.end(), Dim(1));
  out.insert(out.end(), s->begin() + 1, s->end());
  if (!CanReshape(*s, out)) return {};
  return out;
}

std::optional<Plan> PlanElementwise(const Graph& g, const Node& n) {
  std::optional<Merge> first;
  std::vector<Input> inputs;
  for (ValueId v : n.inputs) {
    const auto m = v.valid() ? MergeOf(g, v) : std::nullopt;
    inputs.push_back({v, m});
    if (m) {
      if (first && !SameLeading(g, *first, *m)) return {};
      if (!first) first = m;
    } else if (v.valid()) {
      // Others must not reach the merged dims (a scalar, or a row such as a bias), or are split below.
      const SymShape* s = ShapeOf(g, v);
      const SymShape* out = ShapeOf(g, n.output());
      if (s == nullptr || out == nullptr || s->size() > out->size()) return {};
    }
  }
  if (!first) return {};
  for (Input& in : inputs) {
    if (in.merge || !in.value.valid() || RankOf(g, in.value) < RankOf(g, n.output())) continue;
    in.split = SplitAs(g, *first, in.value);
    if (!in.split || !IsSplitAgain(g, n, *first)) return {};
  }
  return Plan{std::move(inputs), *first};
}

std::optional<Plan> PlanLastAxis(const Graph& g, const Node& n) {
  const auto m = MergeOf(g, n.input(0));
  const int64_t rank = RankOf(g, n.input(0));
  const int64_t axis = n.attrs.Int("axis", -1);
  if (!m || (axis != -1 && axis != rank - 1)) return {};
  for (size_t i = 1; i < n.outputs.size(); ++i) {
    if (HasUses(g, n.outputs[i])) return {};
  }
  std::vector<Input> inputs{{n.input(0), m}};
  for (size_t i = 1; i < n.inputs.size(); ++i) inputs.push_back({n.inputs[i], {}});
  return Plan{std::move(inputs), *m, true};
}

// A mean of each row, which stays as a column: parts of a norm, whose x is merged as they are.
std::optional<Plan> PlanReduction(const Graph& g, const Node& n) {
  const auto m = MergeOf(g, n.input(0));
  const int64_t rank = RankOf(g, n.input(0));
  if (!m || !ReducesAlong(g, n, Op::kReduceMean, rank - 1, rank)) return {};
  return Plan{{{n.input(0), m}, {n.input(1), {}}}, *m};
}

std::optional<Plan> PlanFor(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kMatMul:
      return PlanMatMul(g, n);
    case Op::kSoftmax:
    case Op::kLogSoftmax:
    case Op::kLayerNormalization:
    case Op::kRMSNormalization:
      return PlanLastAxis(g, n);
    case Op::kReduceMean:
      return PlanReduction(g, n);
    default:
      return IsElementwise(n.op) ? PlanElementwise(g, n) : std::nullopt;
  }
}

}  // namespace

bool SinkReshape(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* out = ShapeOf(g, n.output());
  if (out == nullptr || out->size() < 2) return false;
  const auto plan = PlanFor(g, n);
  if (!plan) return false;
  const SymShape low = *out, high = Unmerged(g, plan->merge, low);
  if (low.size() != plan->merge.kept + 1 || !CanReshape(high, low)) return false;
  Attrs attrs = n.attrs;
  if (plan->last_axis) attrs.Set("axis", int64_t{-1});
  std::vector<ValueId> inputs;
  for (const Input& in : plan->inputs)
    inputs.push_back(in.merge ? Operand(rw, *in.merge) : in.split ? MakeReshape(rw, in.value, *in.split) : in.value);
  if (n.op == Op::kReduceMean) inputs[1] = MakeInts(rw, {-1});
  const ValueId top = Make(rw, n.op, std::move(inputs), std::move(attrs), Type{DTypeOf(g, n.output()), high});
  ReplaceNode(rw, id, MakeReshape(rw, top, low));
  return true;
}

}  // namespace octavo::passes::canonical
