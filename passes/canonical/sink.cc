// views, second part: a Reshape that only merges leading dims sinks below its user.
// Before: [b,s,K] -> Reshape [b*s,K] -> MatMul W -> Add bias -> Reshape [b,s,N]                        (Conv1D, Gemm)
// After:  [b,s,K] -> MatMul W -> Add bias
// Before: q [b,h,s,d] -> Reshape [b*h,s,d], k likewise, MatMul [b*h,s,t] -> Reshape [b,h,s,t]          (torch.bmm)
// After:  MatMul(q, k) [b,h,s,t]
// Every element is computed by the same operations in the same order: same bits. Where nothing undoes the Reshape further
// down, it merely stands lower, which costs nothing: it moves no data.
#include "octavo/passes/canonical/sink.h"

#include <utility>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

struct Merge {
  ValueId source;  // in front of the Reshape
  size_t kept = 0;   // trailing dims that the Reshape leaves alone
};

// v is a Reshape that merges two or more leading dims into one and leaves all others.
std::optional<Merge> MergeOf(const Graph& g, ValueId v) {
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
  return Merge{p->input(0), kept};
}

// Shape in front of a Reshape whose result has the trailing dims of `out`.
SymShape Unmerged(const Graph& g, const Merge& m, const SymShape& out) {
  SymShape s = *ShapeOf(g, m.source);
  s.resize(s.size() - m.kept);
  s.insert(s.end(), out.begin() + 1, out.end());
  return s;
}

bool SameLeading(const Graph& g, const Merge& a, const Merge& b) {
  const SymShape &sa = *ShapeOf(g, a.source), &sb = *ShapeOf(g, b.source);
  if (a.kept != b.kept || sa.size() != sb.size()) return false;
  for (size_t i = 0; i + a.kept < sa.size(); ++i) {
    if (!ProvablyEqual(sa[i], sb[i])) return false;
  }
  return true;
}

// Operands for the op above the Reshape, or nothing.
struct Plan {
  std::vector<ValueId> inputs;
  Merge merge;
  int64_t last_axis_attr = 0;  // set on the new node where the op has an axis
  bool transpose_second = false;  // the last two dims of operand 1
};

std::optional<Plan> PlanMatMul(const Graph& g, const Node& n) {
  const auto a = MergeOf(g, n.input(0));
  if (!a) return {};
  if (IsConstantLike(g, n.input(1)) && RankOf(g, n.input(1)) == 2) return Plan{{a->source, n.input(1)}, *a};
  if (a->kept != 2) return {};
  if (const auto b = MergeOf(g, n.input(1))) {
    return SameLeading(g, *a, *b) ? std::optional(Plan{{a->source, b->source}, *a}) : std::nullopt;
  }
  // K: the merge, then Transpose 0,2,1.
  const Node* t = g.Producer(n.input(1));
  if (t == nullptr || t->op != Op::kTranspose || PermOf(*t, 3) != Ints{0, 2, 1}) return {};
  const auto b = MergeOf(g, t->input(0));
  if (!b || !SameLeading(g, *a, *b)) return {};
  return Plan{{a->source, b->source}, *a, 0, true};
}

std::optional<Plan> PlanElementwise(const Graph& g, const Node& n) {
  std::optional<Merge> first;
  std::vector<ValueId> inputs;
  for (ValueId v : n.inputs) {
    if (!v.valid()) {
      inputs.push_back(v);
      continue;
    }
    if (const auto m = MergeOf(g, v)) {
      if (first && !SameLeading(g, *first, *m)) return {};
      if (!first) first = m;
      inputs.push_back(m->source);
      continue;
    }
    // Others must not reach the merged dims: a scalar, or a row such as a bias.
    const SymShape* s = ShapeOf(g, v);
    const SymShape* out = ShapeOf(g, n.output());
    if (s == nullptr || out == nullptr || s->size() >= out->size()) return {};
    inputs.push_back(v);
  }
  if (!first) return {};
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
  std::vector<ValueId> inputs = n.inputs;
  inputs[0] = m->source;
  return Plan{std::move(inputs), *m, -1};
}

std::optional<Plan> PlanQuantize(const Graph& g, const Node& n) {
  const auto m = MergeOf(g, n.input(0));
  const Tensor* scale = g.ConstantOf(n.input(1));
  if (!m || scale == nullptr || scale->size() != 1) return {};
  std::vector<ValueId> inputs = n.inputs;
  inputs[0] = m->source;
  return Plan{std::move(inputs), *m};
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
    case Op::kQuantizeLinear:
    case Op::kDequantizeLinear:
      return PlanQuantize(g, n);
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
  if (attrs.Has("axis") && plan->last_axis_attr != 0) attrs.Set("axis", plan->last_axis_attr);
  if (n.op == Op::kQuantizeLinear || n.op == Op::kDequantizeLinear) attrs.Erase("axis");
  std::vector<ValueId> inputs = plan->inputs;
  if (plan->transpose_second) {
    Ints perm;
    for (int64_t i = 0; i < RankOf(g, inputs[1]); ++i) perm.push_back(i);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    inputs[1] = MakeTranspose(rw, inputs[1], perm);
  }
  const ValueId top = Make(rw, n.op, std::move(inputs), std::move(attrs), Type{DTypeOf(g, n.output()), high});
  ReplaceNode(rw, id, MakeReshape(rw, top, low));
  return true;
}

}  // namespace octavo::passes::canonical
