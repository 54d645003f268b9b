#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/codes.h"
#include "octavo/passes/fusions/sdpa_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

ir::Attrs SdpaAttrs(const Match& m, Var q, Var kt, Var v, const SdpaMiddle& mid) {
  const ir::SymShape& qs = *ShapeOfHeads(m, q);
  ir::Attrs attrs{{"num_heads", HeadsOf(qs).number()},
                  {"kv_num_heads", HeadsOf(*ShapeOfHeads(m, kt)).number()},
                  {"head_dim", qs.back().number()},
                  {"v_head_dim", ShapeOfHeads(m, v)->back().number()},
                  {"q_rank", int64_t{4}},
                  {"k_rank", int64_t{4}},
                  {"v_rank", int64_t{4}},
                  {"out_rank", int64_t{4}},
                  {"scale", m.Has(mid.scale) ? m.scalar(mid.scale) : 1.0f},
                  {"nan_guard", m.Has(mid.masked_guard) ? ir::kSdpaGuardMasked : int64_t{m.Has(mid.guard) ? 1 : 0}}};
  if (m.Has(mid.cap)) attrs.Set("softcap", m.scalar(mid.cap));
  if (m.Has(mid.hidden)) attrs.Set("hidden_value", m.scalar(mid.hidden));
  return attrs;
}

void AddMasks(Rewriter& b, const Match& m, const SdpaMiddle& mid, size_t rank, std::vector<ValueId>* inputs) {
  inputs->push_back(m.Has(mid.mask) ? Lifted(b, m[mid.mask], rank) : ValueId{});
  ValueId keep = m.Has(mid.keep) ? m[mid.keep] : ValueId{};
  if (m.Has(mid.hide)) {
    keep = b.Create(Op::kNot, {m[mid.hide]});
    b.graph().SetType(keep, b.graph().value(m[mid.hide]).type);
  }
  inputs->push_back(keep ? Lifted(b, keep, rank) : ValueId{});
  while (!inputs->back().valid()) inputs->pop_back();
}

ValueId Lifted(Rewriter& b, ValueId v, size_t rank) {
  const auto& shape = b.graph().value(v).type.shape;
  if (rank != 3 || !shape || shape->size() != 3) return v;
  const ValueId up = b.Create(Op::kUnsqueeze, {v, b.Constant(ir::Tensor::S64({1}, {1}))});
  b.graph().SetType(up,
                    {b.graph().value(v).type.dtype, ir::SymShape{(*shape)[0], ir::Dim(1), (*shape)[1], (*shape)[2]}});
  return up;
}
ValueId Lowered(Rewriter& b, ValueId o, size_t rank) {
  return rank == 3 ? b.Create(Op::kSqueeze, {o, b.Constant(ir::Tensor::S64({1}, {1}))}) : o;
}

ValueId Untransposed(Rewriter& b, ValueId kt) {
  const Graph& g = b.graph();
  const Node* p = g.Producer(kt);
  if (p != nullptr && p->op == Op::kDequantizeLinear && HasScalarParams(g, *p) &&
      g.IsFrom(p->input(0), Op::kTranspose)) {
    const Node dq = *p;
    return Dequantized(b, dq, Untransposed(b, dq.input(0)));
  }
  if (p != nullptr && p->op == Op::kTranspose) {
    std::vector<int64_t> perm = p->attrs.Ints("perm");
    if (perm.size() == 4) {
      const ValueId source = p->inputs[0];
      std::swap(perm[2], perm[3]);  // undo the exchange of the last two axes
      if (perm == std::vector<int64_t>{0, 1, 2, 3}) return source;
      return b.Create(Op::kTranspose, {source}, {{"perm", perm}});
    }
  }
  return b.Create(Op::kTranspose, {kt}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
}

}  // namespace octavo::passes::fusions
