// Before: Sdpa(Transpose(Reshape(x [B,S,H*D], [B,S,H,D]), 0 2 1 3), ...)            (q, k or v)
// After:  Sdpa(x, ...) {q_rank = 3}, which finds the heads itself
// Exact: only addresses change. Works alike on Sdpa and QuantizedSdpa.
// Refuses: a split that changes more than the last axis.
#include <format>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

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
    const ir::SymShape *from = m.shape(x, 3), *to = m.shape(heads, 4);
    if (from == nullptr || to == nullptr) return Shape("the head split does not go from rank 3 to rank 4");
    if (!ProvablyEqual((*from)[0], (*to)[0]) || !ProvablyEqual((*from)[1], (*to)[1])) {
      return Illegal(std::format("the head split changes more than the last axis: {} to {}", ir::ToString(*from),
                                 ir::ToString(*to)));
    }
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node& old = m.at(root);
    std::vector<ValueId> in = old.inputs;
    in[slot] = m[x];
    ir::Attrs attrs = old.attrs;
    attrs.Set(std::format("{}_rank", operand), int64_t{3});
    return b.Create(op, std::move(in), std::move(attrs));
  });
  return r.Finish();
}

}  // namespace

Rule SdpaSplitQ(Op op) { return Split(op, 0, "q"); }
Rule SdpaSplitK(Op op) { return Split(op, 1, "k"); }
Rule SdpaSplitV(Op op) { return Split(op, 2, "v"); }

}  // namespace octavo::passes::fusions
