#include "octavo/passes/fusions/sdpa_common.h"

#include <format>

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

SdpaMiddle MatchScoresToProbabilities(RuleBuilder& r, Var q, Var kt) {
  SdpaMiddle mid;
  const Var product = r.Op("scores", Op::kMatMul, {q, kt});
  mid.scale = r.Scalar("scale");
  const Var scaled = r.Optional(r.AnyOrder("scaled", Op::kMul, product, mid.scale), product);
  mid.mask = r.Input("mask");
  const Var masked = r.Optional(r.AnyOrder("masked", Op::kAdd, scaled, mid.mask), scaled);
  const Var softmax = r.Op("probabilities", Op::kSoftmax, {masked}, LastAxis(-1));
  mid.guard = r.Op("nan_guard", Op::kWhere, {r.Op("is_nan", Op::kIsNaN, {softmax}), r.Scalar("zero"), softmax});
  mid.p = r.Optional(mid.guard, softmax);
  return mid;
}

namespace {

const ir::SymShape* Shape4(const Match& m, Var v) {
  const auto& shape = m.graph().value(m[v]).type.shape;
  return shape && shape->size() == 4 ? &*shape : nullptr;
}

}  // namespace

Verdict CheckHeads(const Match& m, Var q, Var kt, Var v, const SdpaMiddle& mid) {
  const ir::SymShape* qs = Shape4(m, q);
  const ir::SymShape* ks = Shape4(m, kt);
  const ir::SymShape* vs = Shape4(m, v);
  if (qs == nullptr || ks == nullptr || vs == nullptr) {
    return Shape("q, k^T or v is not known to have rank 4 (batch, heads, rows, columns)");
  }
  if (!(*qs)[1].is_number() || !(*qs)[3].is_number() || !(*vs)[3].is_number()) {
    return Shape(std::format("the number of heads or the head size is not a number: q is {}, v is {}",
                             ir::ToString(*qs), ir::ToString(*vs)));
  }
  if (!ProvablyEqual((*qs)[1], (*ks)[1]) || !ProvablyEqual((*qs)[1], (*vs)[1])) {
    return Illegal(std::format("heads disagree: q {}, k^T {}, v {}", ir::ToString(*qs), ir::ToString(*ks),
                               ir::ToString(*vs)));
  }
  if (!ProvablyEqual((*qs)[0], (*ks)[0]) || !ProvablyEqual((*qs)[0], (*vs)[0])) {
    return Illegal(std::format("batches disagree: q {}, k^T {}, v {}", ir::ToString(*qs), ir::ToString(*ks),
                               ir::ToString(*vs)));
  }
  if (m.Has(mid.guard) && m.graph().ConstantOf(m.at(mid.guard).input(1))->GetDouble(0) != 0.0) {
    return Illegal("the NaN guard does not write zero");
  }
  if (m.Has(mid.mask)) {
    const ir::Type& mask = m.graph().value(m[mid.mask]).type;
    if (mask.dtype != ir::DType::kF32 || !mask.shape || mask.shape->size() > 4) {
      return Illegal(std::format("the mask '{}' has type {}", m.graph().value(m[mid.mask]).name, ToString(mask)));
    }
  }
  return Ok();
}

ir::Attrs SdpaAttrs(const Match& m, Var q, Var /*kt*/, Var v, const SdpaMiddle& mid) {
  const ir::SymShape& qs = *Shape4(m, q);
  const int64_t heads = qs[1].number();
  ir::Attrs attrs{{"num_heads", heads},
                  {"kv_num_heads", heads},
                  {"head_dim", qs[3].number()},
                  {"v_head_dim", (*Shape4(m, v))[3].number()},
                  {"q_rank", int64_t{4}},
                  {"k_rank", int64_t{4}},
                  {"v_rank", int64_t{4}},
                  {"out_rank", int64_t{4}},
                  {"scale", m.Has(mid.scale) ? m.scalar(mid.scale) : 1.0f},
                  {"nan_guard", int64_t{m.Has(mid.guard) ? 1 : 0}}};
  return attrs;
}

ValueId Untransposed(Rewriter& b, ValueId kt) {
  const Graph& g = b.graph();
  const Node* p = g.Producer(kt);
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
