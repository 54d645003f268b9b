// Before: o = Attention(q, k, v [, mask])         ONNX opset 23, without cache, softcap or causal flag
// After:  o = Sdpa(q, k, v, additive mask)
// The op scales q and k by sqrt(scale) each, Sdpa the scores by scale: float results differ by rounding. A bool mask becomes
// 0 and -inf; a wholly masked row gives zeros, as ONNX 1.23 says and as the interpreter has it (nan_guard).
// Refuses: a cache, softcap, is_causal (exporters write the triangle into the mask), outputs other than the first.
#include <cmath>
#include <format>
#include <limits>

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
  return {HeadsOf(m.graph(), m[q], n.attrs.Int("q_num_heads", 0)), HeadsOf(m.graph(), m[k], kv), HeadsOf(m.graph(), m[v], kv)};
}

Verdict Check(const Match& m, const Node& n, const Operands& o) {
  for (size_t i = 1; i < n.outputs.size(); ++i) {
    const ValueId extra = n.outputs[i];
    if (extra.valid() && (!m.graph().value(extra).uses.empty() || m.graph().IsGraphOutput(extra))) {
      return Illegal(std::format("its output {} (present or scores) is used", i));
    }
  }
  if (n.input(4) || n.input(5) || n.input(6)) return Illegal("it has a key/value cache");
  if (n.attrs.Float("softcap", 0.0f) != 0.0f) return Illegal("it has a softcap");
  if (n.attrs.Int("is_causal", 0) != 0) return Illegal("is_causal is set; write the triangle into the mask");
  if (o.q.heads == 0 || o.k.heads == 0 || o.v.heads == 0 || o.k.heads != o.v.heads || o.q.heads % o.k.heads != 0 || o.q.dim != o.k.dim) {
    return Shape("the numbers of heads and the head sizes are not known or do not fit each other");
  }
  if (n.input(3)) {
    const ir::Type& mask = m.graph().value(n.input(3)).type;
    if ((mask.dtype != DType::kBool && mask.dtype != DType::kF32) || !mask.shape || mask.shape->size() > 4) {
      return Illegal(std::format("its mask has type {}", ToString(mask)));
    }
  }
  return Ok();
}

}  // namespace

Rule AttentionOp() {
  RuleBuilder r("sdpa_from_attention", "ONNX Attention -> Sdpa");
  const Spec f32{.dtypes = {DType::kF32}};
  const Var q = r.Input("q", f32);
  const Var k = r.Input("k", f32);
  const Var v = r.Input("v", f32);
  const Var root = r.Op("attention", Op::kAttention, {q, k, v});
  r.Root(root);
  r.Guard([=](const Match& m) { return Check(m, m.at(root), Describe(m, q, k, v, m.at(root))); });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node n = m.at(root);
    const Operands o = Describe(m, q, k, v, n);
    std::vector<ValueId> in{m[q], m[k], m[v]};
    if (ValueId mask = n.input(3)) {
      if (b.graph().value(mask).type.dtype == DType::kBool) {
        const ValueId zero = b.Constant(ir::Tensor::ScalarF32(0.0f));
        const ValueId minus = b.Constant(ir::Tensor::ScalarF32(-std::numeric_limits<float>::infinity()));
        mask = b.Create(Op::kWhere, {mask, zero, minus});
      }
      in.push_back(mask);
    }
    const float scale = n.attrs.Float("scale", 1.0f / std::sqrt(static_cast<float>(o.q.dim)));
    return b.Create(Op::kSdpa, std::move(in),
                    {{"num_heads", o.q.heads}, {"kv_num_heads", o.k.heads}, {"head_dim", o.q.dim}, {"v_head_dim", o.v.dim},
                     {"q_rank", o.q.rank}, {"k_rank", o.k.rank}, {"v_rank", o.v.rank}, {"out_rank", o.q.rank},
                     {"scale", scale}, {"nan_guard", int64_t{1}}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
