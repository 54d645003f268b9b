#include <algorithm>
#include <array>
#include <format>

#include "octavo/passes/fusions/sdpa_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules

const ir::SymShape* ShapeOfHeads(const Match& m, Var v) {
  const ir::SymShape* four = m.shape(v, 4);
  return four != nullptr ? four : m.shape(v, 3);
}

ir::Dim HeadsOf(const ir::SymShape& s) { return s.size() == 4 ? s[1] : ir::Dim(1); }

bool ReducesRows(const Graph& g, const Node& n) {
  const ir::Tensor* axes = g.ConstantOf(n.input(1));
  const auto& shape = g.value(n.input(0)).type.shape;
  if (axes == nullptr || axes->size() != 1 || n.attrs.Int("keepdims", 1) == 0) return false;
  return axes->GetInt(0) == -1 || (shape && axes->GetInt(0) == static_cast<int64_t>(shape->size()) - 1);
}

namespace {

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

// The same, or sizes under two names: a run compares them, and where they differ the body means what the graph did (runtime/step_attention.cc).
bool MayBeOneBatch(const ir::Dim& a, const ir::Dim& b) {
  return ProvablyEqual(a, b) || (!a.is_number() && !b.is_number());
}

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

// More dims in front than heads and one batch: what pass cores did not know of them. Of operands with as many dims; `?` is no size that equals itself.
Verdict RefuseRanks(const Match& m, const std::array<Var, 3>& operands, const SdpaMiddle& mid) {
  const auto type = [&](Var x) -> const ir::Type& { return m.graph().value(m[x]).type; };
  const auto& [q, kt, v] = operands;
  const auto deep = [&](Var x) { return type(x).shape && type(x).shape->size() > 4; };
  if (!std::ranges::all_of(operands, deep)) {
    return Shape(std::format(
        "q, k^T and v are not known to have rank 4 (batch, heads, rows, columns) or 3: they are {}, {} and {}",
        ToString(type(q)), ToString(type(kt)), ToString(type(v))));
  }
  const ir::SymShape& qs = *type(q).shape;
  const auto in_front = [&](Var x) {
    const ir::SymShape& own = *type(x).shape;
    return own.size() == qs.size() &&
           std::equal(qs.begin(), qs.end() - 2, own.begin(),
                      [](const ir::Dim& a, const ir::Dim& b) { return ProvablyEqual(a, b); });
  };
  if (!in_front(kt) || !in_front(v)) {
    return Shape(std::format(
        "dims in front of rows and columns are one batch only where they are known to be the same, as by names of the "
        "model's inputs: q is {}, k^T {} and v {}",
        ToString(type(q)), ToString(type(kt)), ToString(type(v))));
  }
  for (Var mask : {mid.mask, mid.keep, mid.hide}) {
    if (!m.Has(mask)) continue;
    return Shape(std::format(
        "q is {}, and its dims in front of rows and columns are one batch only where the mask '{}' is known to have "
        "each of them or 1: it is {}",
        ToString(type(q)), m.graph().value(m[mask]).name, ToString(type(mask))));
  }
  return Shape(std::format(
      "dims in front of rows and columns did not become one batch (pass cores), for what stands between the products "
      "or for sizes that only a run knows: q is {}, k^T {} and v {}",
      ToString(type(q)), ToString(type(kt)), ToString(type(v))));
}

}  // namespace

Verdict CheckHeads(const Match& m, Var q, Var kt, Var v, const SdpaMiddle& mid) {
  const ir::SymShape* qs = ShapeOfHeads(m, q);
  const ir::SymShape* ks = ShapeOfHeads(m, kt);
  const ir::SymShape* vs = ShapeOfHeads(m, v);
  if (qs == nullptr || ks == nullptr || vs == nullptr || qs->size() != ks->size() || qs->size() != vs->size())
    return RefuseRanks(m, {q, kt, v}, mid);
  const auto counts = [](const ir::Dim& d) { return d.is_number() && d.number() > 0; };
  if (!counts(HeadsOf(*qs)) || !counts(qs->back()) || !counts(vs->back())) {
    return Shape(std::format("the number of heads or the head size is no number above 0: q is {}, v is {}",
                             ir::ToString(*qs), ir::ToString(*vs)));
  }
  const ir::Dim kv = HeadsOf(*ks);  // one head of K and V for all of Q broadcasts
  if (!ProvablyEqual(kv, HeadsOf(*vs)) || !(ProvablyEqual(HeadsOf(*qs), kv) || ProvablyEqual(kv, ir::Dim(1)))) {
    return Illegal(
        std::format("heads disagree: q {}, k^T {}, v {}", ir::ToString(*qs), ir::ToString(*ks), ir::ToString(*vs)));
  }
  if (!MayBeOneBatch((*qs)[0], (*ks)[0]) || !MayBeOneBatch((*qs)[0], (*vs)[0])) {
    return Illegal(std::format("the batches of q {}, k^T {} and v {} are not known to be the same", ir::ToString(*qs),
                               ir::ToString(*ks), ir::ToString(*vs)));
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

}  // namespace octavo::passes::fusions
