// Before: Sdpa(q, Reshape(Expand(Unsqueeze(k [B,G,S,D], 2))), the same of v)        (grouped queries)
// After:  Sdpa(q, k, v) {kv_num_heads = G}
// The same where codes (of a cache) of one scale are repeated and then dequantized. Exact: only addresses change. Works alike on
// Sdpa and QuantizedSdpa.
#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

// Unsqueeze(2), Expand, Reshape of one operand: [B,G,S,D] -> [B,G,1,S,D] -> [B,G,R,S,D] -> [B,G*R,S,D].
struct Repeated {
  Var base, wide, heads, dq, operand;
};
Repeated MatchRepeated(RuleBuilder& r, const std::string& name) {
  const Var base = r.Input(name);
  const Var five = r.MayEscape(r.Op(name + "_five", Op::kUnsqueeze, {base, Anything()}));
  const Var also_reshape = r.MayEscape(r.Op(name + "_five_by_reshape", Op::kReshape, {base, Anything()}));
  const Var unsqueezed = r.OneOf(name + "_unsqueezed", {five, also_reshape});
  const Var wide = r.MayEscape(r.Op(name + "_wide", Op::kExpand, {unsqueezed, Anything()}));
  const Var heads = r.MayEscape(r.Op(name + "_repeated", Op::kReshape, {wide, Anything()}));
  const Var dq = r.MayEscape(r.Open(r.Op(name + "_dequantized", Op::kDequantizeLinear, {heads})));
  return {base, wide, heads, dq, r.Optional(dq, heads)};
}

// R, or 0 where it is something else.
int64_t RepeatCount(const Match& m, const Repeated& v) {
  if (m.Has(v.dq) && !HasScalarParams(m.graph(), m.at(v.dq))) return 0;
  const ir::SymShape *b = m.shape(v.base, 4), *wide = m.shape(v.wide, 5), *out = m.shape(v.heads, 4);
  const auto& five = m.graph().value(m.at(v.wide).input(0)).type.shape;
  if (b == nullptr || wide == nullptr || out == nullptr || !five || five->size() != 5) return 0;
  if (!(*wide)[2].is_number() || !ProvablyEqual((*five)[2], ir::Dim(1)) || !(*b)[1].is_number()) return 0;
  const int64_t repeat = (*wide)[2].number();
  const ir::SymShape repeated{(*b)[0], (*b)[1], ir::Dim(repeat), (*b)[2], (*b)[3]};
  if (!ProvablyEqual(*wide, repeated)) return 0;
  const bool merged = ProvablyEqual((*out)[1], (*b)[1] * ir::Dim(repeat)) && ProvablyEqual((*out)[2], (*b)[2]) &&
                      ProvablyEqual((*out)[3], (*b)[3]);
  return merged ? repeat : 0;
}

}  // namespace

Rule SdpaRepeat(Op op) {
  RuleBuilder r("sdpa_repeat", "attention with repeated key/value heads -> grouped-query attention");
  const Repeated k = MatchRepeated(r, "k"), v = MatchRepeated(r, "v");
  const Var root = r.Open(r.Op("attention", op, {Anything(), k.operand, v.operand}));
  r.Root(root);
  r.Guard([=](const Match& m) {
    const int64_t of_k = RepeatCount(m, k);
    if (of_k <= 0 || of_k != RepeatCount(m, v)) return Illegal("K and V are not repeated alike, head by head");
    if (m.at(root).attrs.Int("kv_num_heads", 0) != m.at(root).attrs.Int("num_heads", -1))
      return Illegal("the heads are grouped already");
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node old = m.at(root);
    std::vector<ValueId> in = old.inputs;
    ir::Attrs attrs = old.attrs;
    for (const auto& [slot, of] : {std::pair(size_t{1}, k), std::pair(size_t{2}, v)})
      in[slot] = m.Has(of.dq) ? Dequantized(b, m.at(of.dq), m[of.base]) : m[of.base];
    attrs.Set("kv_num_heads", old.attrs.Int("num_heads", 0) / RepeatCount(m, k));
    return b.Create(op, std::move(in), std::move(attrs));
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
