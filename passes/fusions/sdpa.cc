// Before: s = MatMul(q, kT) [* scale];  [s = Tanh(s / cap) * cap];  [s = s + mask];  [s = Where(keep, s, hidden)];
//         p = Softmax(s);  [p = Where(IsNaN(p), 0, p)];  o = MatMul(p, v)
// After:  o = Sdpa(q, k, v, mask, keep), all of rank 4 (sdpa_split.cc, sdpa_repeat.cc and sdpa_merge.cc absorb what is done to heads)
// Shapes: q [B,H,Sq,D]  kT [B,H,D,Sk]  v [B,H,Sk,Dv]  mask broadcastable to [B,H,Sq,Sk]; K and V may have one head for all of
//         Q. Rank 3, [N,S,D], is attention with one head.
// Exact: the same operations in the same order. A mask of -inf or -3.4e38 keeps its meaning.
//        Batches with names of their own are compared when the graph runs; where they differ, the body of the op does what the graph did.
// Refuses: softmax over another axis, unknown head counts, masks that are or may be wider than the scores.
#include "octavo/passes/fusions/sdpa_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule Sdpa() {
  RuleBuilder r("sdpa", "Softmax(q k^T * scale + mask) v -> Sdpa");
  const Var q = r.Input("q", {.dtypes = {ir::DType::kF32}});
  const Var kt = r.Input("kT", {.dtypes = {ir::DType::kF32}});
  const Var v = r.Input("v", {.dtypes = {ir::DType::kF32}});
  const SdpaMiddle mid = MatchScoresToProbabilities(r, q, kt, false);
  r.Root(r.Op("output", Op::kMatMul, {mid.p, v}));
  r.Guard([=](const Match& m) { return CheckHeads(m, q, kt, v, mid); });
  r.Build([=](Rewriter& b, const Match& m) {
    const size_t rank = m.graph().value(m[q]).type.shape->size();
    std::vector<ValueId> inputs{Lifted(b, m[q], rank), Untransposed(b, Lifted(b, m[kt], rank)), Lifted(b, m[v], rank)};
    AddMasks(b, m, mid, rank, &inputs);
    return Lowered(b, b.Create(Op::kSdpa, std::move(inputs), SdpaAttrs(m, q, kt, v, mid)), rank);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
