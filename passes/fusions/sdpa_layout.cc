// Before: Sdpa(Transpose(Reshape(x [B,S,H*D], [B,S,H,D]), 0 2 1 3), ...)            (q, k or v)
//         Sdpa(q, Reshape(Expand(Unsqueeze(k [B,G,S,D], 2))), the same of v)        (grouped queries)
//         Reshape(Transpose(Sdpa(...), 0 2 1 3), [B,S,H*Dv])                        (or [B*S,H*Dv], GPT-2)
// After:  Sdpa reads x itself (rank 3), keeps G key/value heads, writes [B,S,H*Dv] itself (a Reshape to [B*S,H*Dv] stays).
// Exact: only addresses change. Works alike on Sdpa and SdpaInt8.
#include <format>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

// A copy of the attention node with other inputs and attributes.
ValueId Rebuild(Rewriter& b, const Node& old, std::vector<ValueId> inputs, ir::Attrs attrs) {
  return b.Create(old.op, std::move(inputs), std::move(attrs));
}

const ir::SymShape* ShapeOf(const Match& m, Var v, size_t rank) {
  const auto& shape = m.graph().value(m[v]).type.shape;
  return shape && shape->size() == rank ? &*shape : nullptr;
}

Rule Split(Op op, size_t slot, const char* operand) {
  RuleBuilder r(std::format("sdpa_split_{}", operand), "attention reads [B,S,H*D] instead of the split heads");
  const Var x = r.Input("x");
  const Var heads = r.MayEscape(r.Op("heads", Op::kReshape, {x, Anything()}));
  const Var split = r.MayEscape(r.Op("split", Op::kTranspose, {heads}, PermIs({0, 2, 1, 3})));
  std::vector<Var> inputs(slot, Anything());
  inputs.push_back(split);
  const Var root = r.Open(r.Op("attention", op, inputs));
  r.Root(root);
  r.Guard([=](const Match& m) {
    const ir::SymShape* from = ShapeOf(m, x, 3);
    const ir::SymShape* to = ShapeOf(m, heads, 4);
    if (from == nullptr || to == nullptr) return Shape("the head split does not go from rank 3 to rank 4");
    if (!ProvablyEqual((*from)[0], (*to)[0]) || !ProvablyEqual((*from)[1], (*to)[1])) {
      return Illegal(std::format("the head split changes more than the last axis: {} to {}", ir::ToString(*from),
                                 ir::ToString(*to)));
    }
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node old = m.at(root);
    std::vector<ValueId> in = old.inputs;
    in[slot] = m[x];
    ir::Attrs attrs = old.attrs;
    attrs.Set(std::format("{}_rank", operand), int64_t{3});
    return Rebuild(b, old, std::move(in), std::move(attrs));
  });
  return r.Finish();
}

// Unsqueeze(2), Expand, Reshape of one operand; `base` is [B,G,S,D].
Var Repeated(RuleBuilder& r, Var base, const std::string& name) {
  const Var five = r.MayEscape(r.Op(name + "_five", Op::kUnsqueeze, {base, Anything()}));
  const Var also_reshape = r.MayEscape(r.Op(name + "_five_by_reshape", Op::kReshape, {base, Anything()}));
  const Var unsqueezed = r.OneOf(name + "_unsqueezed", {five, also_reshape});
  const Var wide = r.MayEscape(r.Op(name + "_wide", Op::kExpand, {unsqueezed, Anything()}));
  return r.MayEscape(r.Op(name + "_repeated", Op::kReshape, {wide, Anything()}));
}

// [B,G,S,D] -> [B,G,1,S,D] -> [B,G,R,S,D] -> [B,G*R,S,D]; returns R or 0.
int64_t RepeatCount(const Graph& g, ValueId base, ValueId repeated) {
  const Node& merge = *g.Producer(repeated);
  const Node& expand = *g.Producer(merge.inputs[0]);
  const auto& b = g.value(base).type.shape;
  const auto& five = g.value(expand.inputs[0]).type.shape;
  const auto& wide = g.value(merge.inputs[0]).type.shape;
  const auto& out = g.value(repeated).type.shape;
  if (!b || !five || !wide || !out || b->size() != 4 || five->size() != 5 || wide->size() != 5 || out->size() != 4)
    return 0;
  if (!(*wide)[2].is_number() || !ProvablyEqual((*five)[2], ir::Dim(1)) || !(*b)[1].is_number()) return 0;
  const int64_t repeat = (*wide)[2].number();
  const bool same = ProvablyEqual((*wide)[0], (*b)[0]) && ProvablyEqual((*wide)[1], (*b)[1]) &&
                    ProvablyEqual((*wide)[3], (*b)[2]) && ProvablyEqual((*wide)[4], (*b)[3]) &&
                    ProvablyEqual((*out)[1], (*b)[1] * ir::Dim(repeat)) && ProvablyEqual((*out)[2], (*b)[2]) &&
                    ProvablyEqual((*out)[3], (*b)[3]);
  return same ? repeat : 0;
}

}  // namespace

Rule SdpaSplitQ(Op op) { return Split(op, 0, "q"); }
Rule SdpaSplitK(Op op) { return Split(op, 1, "k"); }
Rule SdpaSplitV(Op op) { return Split(op, 2, "v"); }

Rule SdpaRepeat(Op op) {
  RuleBuilder r("sdpa_repeat", "attention with repeated key/value heads -> grouped-query attention");
  const Var k = r.Input("k");
  const Var v = r.Input("v");
  const Var wide_k = Repeated(r, k, "k");
  const Var wide_v = Repeated(r, v, "v");
  const Var root = r.Open(r.Op("attention", op, {Anything(), wide_k, wide_v}));
  r.Root(root);
  r.Guard([=](const Match& m) {
    const int64_t of_k = RepeatCount(m.graph(), m[k], m[wide_k]);
    const int64_t of_v = RepeatCount(m.graph(), m[v], m[wide_v]);
    if (of_k <= 0 || of_k != of_v) return Illegal("K and V are not repeated alike, head by head");
    if (m.at(root).attrs.Int("kv_num_heads", 0) != m.at(root).attrs.Int("num_heads", -1)) {
      return Illegal("the heads are grouped already");
    }
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node old = m.at(root);
    const int64_t repeat = RepeatCount(m.graph(), m[k], m[wide_k]);
    std::vector<ValueId> in = old.inputs;
    in[1] = m[k];
    in[2] = m[v];
    ir::Attrs attrs = old.attrs;
    attrs.Set("kv_num_heads", old.attrs.Int("num_heads", 0) / repeat);
    return Rebuild(b, old, std::move(in), std::move(attrs));
  });
  return r.Finish();
}

Rule SdpaMerge(Op op) {
  RuleBuilder r("sdpa_merge", "attention writes [B,S,H*Dv] instead of the split heads");
  const Var attention = r.Open(r.Op("attention", op, {Anything(), Anything(), Anything()}));
  const Var back = r.Op("back", Op::kTranspose, {attention}, PermIs({0, 2, 1, 3}));
  const Var merged = r.Op("merged", Op::kReshape, {back, Anything()});
  r.Root(merged);
  r.Guard([=](const Match& m) {
    const ir::SymShape* from = ShapeOf(m, back, 4);
    const ir::SymShape* to = ShapeOf(m, merged, 3);
    const ir::SymShape* flat = ShapeOf(m, merged, 2);
    if (from == nullptr || (to == nullptr && flat == nullptr)) {
      return Shape("the head merge does not go from rank 4 to rank 3 or 2");
    }
    const bool rows_stay = to != nullptr ? ProvablyEqual((*from)[0], (*to)[0]) && ProvablyEqual((*from)[1], (*to)[1])
                                         : ProvablyEqual((*from)[0] * (*from)[1], (*flat)[0]);
    if (!rows_stay) {
      return Illegal(std::format("the head merge changes more than the last axis: {} to {}", ir::ToString(*from),
                                 ir::ToString(to != nullptr ? *to : *flat)));
    }
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node old = m.at(attention);
    ir::Attrs attrs = old.attrs;
    attrs.Set("out_rank", int64_t{3});
    const ValueId rows = Rebuild(b, old, old.inputs, std::move(attrs));
    if (ShapeOf(m, merged, 3) != nullptr) return rows;
    const Node reshape = m.at(merged);  // its target says the same of [B,S,H*Dv]
    return b.Create(Op::kReshape, {rows, reshape.input(1)}, reshape.attrs);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
