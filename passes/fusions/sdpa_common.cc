#include "octavo/passes/fusions/sdpa_common.h"

#include <format>

#include "octavo/ir/functions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

SdpaMiddle MatchScoresToProbabilities(RuleBuilder& r, Var q, Var kt, bool with_codes, bool relative) {
  SdpaMiddle mid;
  const auto coded = [&](int place, const std::string& name, Var x) {
    if (!with_codes) return x;
    SdpaMiddle::Codes& codes = mid.codes[place];
    codes.quantized = r.MayEscape(r.Open(r.Op(name + "_quantized", Op::kQuantizeLinear, {x})));
    codes.dequantized = r.MayEscape(r.Open(r.Op(name + "_dequantized", Op::kDequantizeLinear, {codes.quantized})));
    return r.Optional(codes.dequantized, x);
  };
  const Var product = coded(0, "scores", r.MayEscape(r.Op("scores", Op::kMatMul, {q, kt})));
  mid.scale = r.Scalar("scale");
  std::vector<Var> by{r.MayEscape(r.AnyOrder("scaled", Op::kMul, product, mid.scale)), product};
  if (with_codes) {
    mid.divisor = r.Scalar("divisor");
    by.insert(by.begin() + 1, r.MayEscape(r.Op("divided", Op::kDiv, {product, mid.divisor})));
  }
  const Var scaled = coded(1, "scaled", r.OneOf("scaled?", by));
  mid.cap = r.Scalar("softcap");
  mid.cap_again = r.Scalar("softcap_again");
  const Var tanh = r.Op("tanh", Op::kTanh, {r.Op("cap_divided", Op::kDiv, {scaled, mid.cap})});
  const Var capped = r.Optional(r.MayEscape(r.AnyOrder("capped", Op::kMul, tanh, mid.cap_again)), scaled);
  mid.mask = r.Input("mask");
  const Var masked =
      coded(2, "masked", r.Optional(r.MayEscape(r.AnyOrder("masked", Op::kAdd, capped, mid.mask)), capped));
  mid.keep = r.Input("keep");
  mid.hidden = r.Scalar("hidden");
  const Var where = r.MayEscape(r.Op("kept", Op::kWhere, {mid.keep, masked, mid.hidden}));
  std::vector<Var> ways{where};
  if (with_codes) {  // a float graph has only the first way by now (canonical/scores.cc)
    mid.hide = r.Input("hide");
    ways.push_back(r.MayEscape(r.Op("not_hidden", Op::kWhere, {mid.hide, mid.hidden, masked})));
  }
  const Var kept = r.Optional(coded(4, "kept", r.OneOf("kept?", ways)), masked);
  if (relative) {
    mid.top = r.Open(r.Op("row_maximum", Op::kReduceMax, {kept, r.Constant("row_axis")}));
    mid.p = r.Op("exponentials", Op::kExp, {r.Op("centered", Op::kSub, {kept, mid.top})});
    return mid;
  }
  const Var softmax = r.MayEscape(r.Op("probabilities", Op::kSoftmax, {kept}, LastAxis(-1)));
  mid.guard =
      r.MayEscape(r.Op("nan_guard", Op::kWhere, {r.Op("is_nan", Op::kIsNaN, {softmax}), r.Scalar("zero"), softmax}));
  mid.guarded_top = r.Open(r.Op("row_maximum", Op::kReduceMax, {kept, r.Constant("row_axis")}));
  mid.is_masked = r.Op("is_masked", Op::kIsInf, {mid.guarded_top}, [](const Graph&, const Node& n) {
    return std::string(n.attrs.Int("detect_negative", 1) != 0 ? "" : "it does not see -inf");
  });
  mid.masked_guard = r.MayEscape(r.Op("masked_guard", Op::kWhere, {mid.is_masked, r.Scalar("nothing"), softmax}));
  mid.p = coded(3, "recoded", r.OneOf("guarded?", {mid.guard, mid.masked_guard, softmax}));
  return mid;
}

namespace {

const ir::SymShape* ShapeOf(const Match& m, Var v) {
  const auto& shape = m.graph().value(m[v]).type.shape;
  return shape && (shape->size() == 4 || shape->size() == 3) ? &*shape : nullptr;
}

// Heads of rank 3 [N,S,D] are part of the batch: one head for each of N.
ir::Dim HeadsOf(const ir::SymShape& s) { return s.size() == 4 ? s[1] : ir::Dim(1); }

// More rows, keys, heads or batches than the scores have, which broadcasting would give them: where a dim of these is 1 or, for all that is known,
// may be. Two symbols are mostly one size under two names, as torch.onnx writes them, and count as that.
bool MayWiden(const ir::Dim& mask, const ir::Dim& scores) {
  if (ProvablyEqual(mask, ir::Dim(1)) || ProvablyEqual(mask, scores)) return false;
  return scores.is_number() ? scores.number() == 1 : mask.is_number();
}

Verdict CheckMask(const Match& m, Var mask, ir::DType type, const ir::SymShape& scores) {
  if (!m.Has(mask)) return Ok();
  const ir::Value& v = m.graph().value(m[mask]);
  if (v.type.dtype != type || !v.type.shape || v.type.shape->size() > scores.size()) {
    return Illegal(std::format("the mask '{}' has type {}", v.name, ToString(v.type)));
  }
  const ir::SymShape& shape = *v.type.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (MayWiden(shape[i], scores[scores.size() - shape.size() + i])) {
      return Illegal(std::format("the mask '{}' may be wider than the scores: {} and {}", v.name, ir::ToString(shape),
                                 ir::ToString(scores)));
    }
  }
  return Ok();
}

}  // namespace

bool ReducesRows(const Graph& g, const Node& n) {
  const ir::Tensor* axes = g.ConstantOf(n.input(1));
  const auto& shape = g.value(n.input(0)).type.shape;
  if (axes == nullptr || axes->size() != 1 || n.attrs.Int("keepdims", 1) == 0) return false;
  return axes->GetInt(0) == -1 || (shape && axes->GetInt(0) == static_cast<int64_t>(shape->size()) - 1);
}

namespace {

Verdict CheckGuard(const Match& m, const SdpaMiddle& mid) {
  for (Var guard : {mid.guard, mid.masked_guard}) {
    if (m.Has(guard) && m.graph().ConstantOf(m.at(guard).input(1))->GetDouble(0) != 0.0)
      return Illegal("the NaN guard does not write zero");
  }
  if (!m.Has(mid.masked_guard)) return Ok();
  const Node& is_inf = m.at(mid.is_masked);
  if (is_inf.attrs.Int("detect_positive", 1) != 0 || is_inf.attrs.Int("detect_negative", 1) == 0)
    return Illegal("the guard of masked rows does not look for -inf");
  return ReducesRows(m.graph(), m.at(mid.guarded_top)) ? Ok()
                                                       : Illegal("the guard of masked rows does not look at rows");
}

}  // namespace

Verdict CheckHeads(const Match& m, Var q, Var kt, Var v, const SdpaMiddle& mid) {
  const ir::SymShape* qs = ShapeOf(m, q);
  const ir::SymShape* ks = ShapeOf(m, kt);
  const ir::SymShape* vs = ShapeOf(m, v);
  if (qs == nullptr || ks == nullptr || vs == nullptr || qs->size() != ks->size() || qs->size() != vs->size()) {
    return Shape(std::format(
        "q, k^T and v are not known to have rank 4 (batch, heads, rows, columns) or 3: they are {}, {} and {}",
        ToString(m.graph().value(m[q]).type), ToString(m.graph().value(m[kt]).type),
        ToString(m.graph().value(m[v]).type)));
  }
  if (!HeadsOf(*qs).is_number() || !qs->back().is_number() || !vs->back().is_number()) {
    return Shape(std::format("the number of heads or the head size is not a number: q is {}, v is {}",
                             ir::ToString(*qs), ir::ToString(*vs)));
  }
  const ir::Dim kv = HeadsOf(*ks);  // one head of K and V for all of Q broadcasts
  if (!ProvablyEqual(kv, HeadsOf(*vs)) || !(ProvablyEqual(HeadsOf(*qs), kv) || ProvablyEqual(kv, ir::Dim(1)))) {
    return Illegal(
        std::format("heads disagree: q {}, k^T {}, v {}", ir::ToString(*qs), ir::ToString(*ks), ir::ToString(*vs)));
  }
  if (!ProvablyEqual((*qs)[0], (*ks)[0]) || !ProvablyEqual((*qs)[0], (*vs)[0])) {
    return Illegal(
        std::format("batches disagree: q {}, k^T {}, v {}", ir::ToString(*qs), ir::ToString(*ks), ir::ToString(*vs)));
  }
  if (Verdict bad = CheckGuard(m, mid); !bad.ok()) return bad;
  if (m.Has(mid.cap) && m.scalar(mid.cap) != m.scalar(mid.cap_again)) {
    return Illegal(std::format("scores are divided by {} before Tanh and multiplied by {} after it", m.scalar(mid.cap),
                               m.scalar(mid.cap_again)));
  }
  if (m.Has(mid.cap) && m.scalar(mid.cap) == 0.0f)  // which says "not capped" in Sdpa
    return Illegal("scores are divided by 0 before Tanh");
  if (m.Has(mid.hidden) && !(m.scalar(mid.hidden) < 0.0f)) {
    return Illegal(std::format("hidden keys get the score {}, which is not negative", m.scalar(mid.hidden)));
  }
  ir::SymShape scores = *qs;
  scores.back() = ks->back();
  for (Var keep : {mid.keep, mid.hide}) {
    if (Verdict bad = CheckMask(m, keep, ir::DType::kBool, scores); !bad.ok()) return bad;
  }
  return CheckMask(m, mid.mask, ir::DType::kF32, scores);
}

ir::Attrs SdpaAttrs(const Match& m, Var q, Var kt, Var v, const SdpaMiddle& mid) {
  const ir::SymShape& qs = *ShapeOf(m, q);
  ir::Attrs attrs{{"num_heads", HeadsOf(qs).number()},
                  {"kv_num_heads", HeadsOf(*ShapeOf(m, kt)).number()},
                  {"head_dim", qs.back().number()},
                  {"v_head_dim", ShapeOf(m, v)->back().number()},
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
