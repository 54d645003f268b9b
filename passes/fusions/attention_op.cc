// Before: o, present k, present v = Attention(q, k, v [, mask, past k, past v, nonpad_kv_seqlen])         ONNX opset 23, 24
// After:  o = Sdpa(q, k, v, additive mask, keep)
// A cache is joined in front of K and V by Concat, which is the present output too.
// nonpad_kv_seqlen, the valid keys of each batch in a cache of fixed length (TensorScatter): a bool mask; with is_causal the
// queries are the last of them (onnx/reference/ops/op_attention.py).
// is_causal: the triangle (key j for query i where j <= i + past) is built from the lengths and joins the mask.
// The op scales q and k by sqrt(scale) each, Sdpa the scores by scale: float results differ by rounding. A bool mask becomes
// 0 and -inf; a wholly masked row gives zeros, as ONNX 1.23 says and as the interpreter has it (nan_guard); a NaN in Q or K stays one.
// Refuses: scores as an output, a mask shorter than the keys, nonpad_kv_seqlen beside a past.
#include <cmath>
#include <format>
#include <limits>

#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

struct Heads {
  int64_t rank = 0, heads = 0, dim = 0;
};

// Rank 3 needs the attribute, rank 4 says it itself; 0 heads: not known.
Heads HeadsOf(const Graph& g, ValueId v, int64_t attribute) {
  const auto& shape = g.value(v).type.shape;
  if (!shape || (shape->size() != 3 && shape->size() != 4)) return {};
  const auto rank = static_cast<int64_t>(shape->size());
  const ir::Dim& last = shape->back();
  if (!last.is_number()) return {};
  if (rank == 4) return (*shape)[1].is_number() ? Heads{4, (*shape)[1].number(), last.number()} : Heads{};
  if (attribute <= 0 || last.number() % attribute != 0) return {};
  return {3, attribute, last.number() / attribute};
}

struct Operands {
  Heads q, k, v;
};
Operands Describe(const Match& m, Var q, Var k, Var v, const Node& n) {
  const int64_t kv = n.attrs.Int("kv_num_heads", 0);
  return {HeadsOf(m.graph(), m[q], n.attrs.Int("q_num_heads", 0)), HeadsOf(m.graph(), m[k], kv),
          HeadsOf(m.graph(), m[v], kv)};
}

bool IsUsed(const Graph& g, ValueId v) { return v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v)); }

Verdict Check(const Match& m, const Node& n, const Operands& o) {
  if (IsUsed(m.graph(), n.output(3))) return Illegal("its output 3, the scores, is used");
  if (n.input(4).valid() != n.input(5).valid()) return Illegal("it has a past of only one of K and V");
  if (n.input(6) && n.input(4))
    return Illegal("it has a past and nonpad_kv_seqlen, which ONNX does not allow together");
  if (!(n.attrs.Float("softcap", 0.0f) >= 0.0f)) return Illegal("its softcap is negative or NaN");
  if (n.attrs.Float("scale", 1.0f) < 0.0f) return Illegal("its scale is negative, and it multiplies by the square root of it");
  if (o.q.heads == 0 || o.k.heads == 0 || o.v.heads == 0 || o.k.heads != o.v.heads || o.q.heads % o.k.heads != 0 ||
      o.q.dim != o.k.dim) {
    return Shape("the numbers of heads and the head sizes are not known or do not fit each other");
  }
  if (n.input(3)) {
    const ir::Type& mask = m.graph().value(n.input(3)).type;
    if ((mask.dtype != DType::kBool && mask.dtype != DType::kF32) || !mask.shape || mask.shape->size() > 4 ||
        mask.shape->empty()) {
      return Illegal(std::format("its mask has type {}", ToString(mask)));
    }
    // A mask that ends before the keys hides the rest of them; Sdpa's mask is as long as they are.
    const ir::SymShape& k = *m.graph().value(n.input(1)).type.shape;
    ir::Dim keys = k[k.size() - 2];
    if (n.input(4)) {
      const auto& past = m.graph().value(n.input(4)).type.shape;
      keys = past && past->size() == 4 ? keys + (*past)[2] : ir::Dim();
    }
    const ir::Dim& last = mask.shape->back();
    // Two symbols are mostly one size under two names.
    if (!ProvablyEqual(last, keys) && !ProvablyEqual(last, ir::Dim(1)) && (last.is_number() || keys.is_number()))
      return Illegal(std::format("its mask covers {} of {} keys", last.ToString(), keys.ToString()));
  }
  return Ok();
}

// Length of q or k as a scalar: the second last dim of rank 4, the second of rank 3.
ValueId Length(Rewriter& b, ValueId v, int64_t rank) {
  const int64_t axis = rank - 2;
  const ValueId shape = b.Create(Op::kShape, {v}, {{"start", axis}, {"end", axis + 1}});
  return b.Create(Op::kSqueeze, {shape, b.Constant(ir::Tensor::S64({1}, {0}))});
}

// K or V [B,G,S,D] after what is cached of it; `present`, where something reads it, becomes the same.
ValueId WithPast(Rewriter& b, ValueId now, Heads* heads, ValueId past, ValueId present) {
  if (!past.valid() && !IsUsed(b.graph(), present)) return now;
  if (heads->rank == 3) {
    const ValueId target = b.Constant(ir::Tensor::S64({4}, {0, 0, heads->heads, heads->dim}));
    now =
        b.Create(Op::kTranspose, {b.Create(Op::kReshape, {now, target})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    heads->rank = 4;
  }
  const ValueId all = past.valid() ? b.Create(Op::kConcat, {past, now}, {{"axis", int64_t{2}}}) : now;
  if (IsUsed(b.graph(), present)) b.Replace(present, all);
  return all;
}

// 0 where key <= query, -inf elsewhere: [Sq, Sk]. Queries come after what is cached.
ValueId Triangle(Rewriter& b, ValueId q, int64_t q_rank, ValueId k, int64_t k_rank, ValueId past) {
  const auto scalar = [&](int64_t i) { return b.Constant(ir::Tensor::S64({}, {i})); };
  ValueId rows = b.Create(Op::kRange, {scalar(0), Length(b, q, q_rank), scalar(1)});
  if (past.valid()) rows = b.Create(Op::kAdd, {rows, Length(b, past, 4)});
  const ValueId cols = b.Create(Op::kRange, {scalar(0), Length(b, k, k_rank), scalar(1)});
  const ValueId column = b.Create(Op::kUnsqueeze, {rows, b.Constant(ir::Tensor::S64({1}, {1}))});
  const ValueId allowed = b.Create(Op::kGreaterOrEqual, {column, cols});
  const ValueId minus = b.Constant(ir::Tensor::ScalarF32(-std::numeric_limits<float>::infinity()));
  return b.Create(Op::kWhere, {allowed, b.Constant(ir::Tensor::ScalarF32(0.0f)), minus});
}

// true where key < valid (of the batch), or key <= query + valid - Sq: [B,1,1,Sk] or [B,1,Sq,Sk].
ValueId ValidKeys(Rewriter& b, const Node& n, const Operands& o, ValueId k) {
  const auto scalar = [&](int64_t i) { return b.Constant(ir::Tensor::S64({}, {i})); };
  const auto axes = [&](std::vector<int64_t> a) {
    return b.Constant(ir::Tensor::S64({static_cast<int64_t>(a.size())}, a));
  };
  const ValueId keys = b.Create(Op::kRange, {scalar(0), Length(b, k, o.k.rank), scalar(1)});
  ValueId end = b.Create(Op::kUnsqueeze, {n.input(6), axes({1, 2, 3})});
  if (n.attrs.Int("is_causal", 0) != 0) {
    const ValueId queries = Length(b, n.input(0), o.q.rank);
    const ValueId row =
        b.Create(Op::kUnsqueeze,
                 {b.Create(Op::kRange, {scalar(1), b.Create(Op::kAdd, {queries, scalar(1)}), scalar(1)}), axes({1})});
    end = b.Create(Op::kAdd, {b.Create(Op::kSub, {end, queries}), row});
  }
  return b.Create(Op::kLess, {keys, end});
}

// What is added to the scores; invalid: nothing.
ValueId AdditiveMask(Rewriter& b, const Node& n, const Operands& o, ValueId k) {
  ValueId mask = n.input(3);
  if (mask.valid() && b.graph().value(mask).type.dtype == DType::kBool) {
    const ValueId zero = b.Constant(ir::Tensor::ScalarF32(0.0f));
    const ValueId minus = b.Constant(ir::Tensor::ScalarF32(-std::numeric_limits<float>::infinity()));
    mask = b.Create(Op::kWhere, {mask, zero, minus});
  }
  if (n.attrs.Int("is_causal", 0) == 0 || n.input(6)) return mask;
  const ValueId triangle = Triangle(b, n.input(0), o.q.rank, k, o.k.rank, n.input(4));
  return mask.valid() ? b.Create(Op::kAdd, {mask, triangle}) : triangle;
}

}  // namespace

Rule AttentionOp() {
  RuleBuilder r("sdpa_from_attention", "ONNX Attention -> Sdpa");
  const Spec f32{.dtypes = {DType::kF32}};
  const Var q = r.Input("q", f32);
  const Var k = r.Input("k", f32);
  const Var v = r.Input("v", f32);
  const Var root = r.Open(r.Op("attention", Op::kAttention, {q, k, v}));
  r.Root(root);
  r.Guard([=](const Match& m) { return Check(m, m.at(root), Describe(m, q, k, v, m.at(root))); });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node n = m.at(root);
    Operands o = Describe(m, q, k, v, n);
    const ValueId keys = WithPast(b, m[k], &o.k, n.input(4), n.output(1));
    std::vector<ValueId> in{m[q], keys, WithPast(b, m[v], &o.v, n.input(5), n.output(2))};
    if (const ValueId mask = AdditiveMask(b, n, o, keys); mask || n.input(6)) in.push_back(mask);
    if (n.input(6)) in.push_back(ValidKeys(b, n, o, keys));
    const float scale = n.attrs.Float("scale", 1.0f / std::sqrt(static_cast<float>(o.q.dim)));
    return b.Create(Op::kSdpa, std::move(in),
                    {{"num_heads", o.q.heads},
                     {"kv_num_heads", o.k.heads},
                     {"head_dim", o.q.dim},
                     {"v_head_dim", o.v.dim},
                     {"q_rank", o.q.rank},
                     {"k_rank", o.k.rank},
                     {"v_rank", o.v.rank},
                     {"out_rank", o.q.rank},
                     {"scale", scale},
                     {"softcap", n.attrs.Float("softcap", 0.0f)},
                     {"nan_guard", ir::kSdpaGuardMasked}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
