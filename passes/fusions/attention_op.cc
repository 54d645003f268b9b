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

#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/onnx_attention.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

Rule AttentionOp() {
  RuleBuilder r("sdpa_from_attention", "ONNX Attention -> Sdpa");
  const Spec f32{.dtypes = {DType::kF32}};
  const Var q = r.Input("q", f32);
  const Var k = r.Input("k", f32);
  const Var v = r.Input("v", f32);
  const Var root = r.Open(r.Op("attention", Op::kAttention, {q, k, v}));
  r.Root(root);
  r.Guard([=](const Match& m) { return CheckAttention(m.graph(), m.at(root)); });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node n = m.at(root);
    Operands o = Describe(m.graph(), n);
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
