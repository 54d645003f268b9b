// Before: Reshape(Transpose(Sdpa(...), 0 2 1 3), [B,S,H*Dv])                        (or [B*S,H*Dv], GPT-2)
// After:  Sdpa(...) {out_rank = 3} writes [B,S,H*Dv] itself                         (a Reshape to [B*S,H*Dv] stays)
// Exact: only addresses change. Works alike on Sdpa and QuantizedSdpa.
// Refuses: a merge that changes more than the last axis.
#include <format>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule SdpaMerge(Op op) {
  RuleBuilder r("sdpa_merge", "attention writes [B,S,H*Dv] instead of the split heads");
  const Var attention = r.Open(r.Op("attention", op, {Anything(), Anything(), Anything()}));
  const Var back = r.Op("back", Op::kTranspose, {attention}, PermIs({0, 2, 1, 3}));
  const Var merged = r.Op("merged", Op::kReshape, {back, Anything()});
  r.Root(merged);
  r.Guard([=](const Match& m) {
    const ir::SymShape *from = m.shape(back, 4), *to = m.shape(merged, 3), *flat = m.shape(merged, 2);
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
    const Node& old = m.at(attention);
    ir::Attrs attrs = old.attrs;
    attrs.Set("out_rank", int64_t{3});
    const ValueId rows = b.Create(op, old.inputs, std::move(attrs));
    if (m.shape(merged, 3) != nullptr) return rows;
    const Node& reshape = m.at(merged);  // its target says the same of [B,S,H*Dv]
    return b.Create(Op::kReshape, {rows, reshape.input(1)}, reshape.attrs);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
