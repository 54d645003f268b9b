// Before: p = Softmax(MatMul(DQ q, DQ kT) [* scale] [+ mask]);  [Where(keep, ., hidden) before it, NaN guard behind it];  o = MatMul(DQ(Q(p)), DQ v);  [o = Q(o)]
//         [DQ(Q(.)) behind the product, the scale (or a division), the mask or the Where, the guard]
// After:  o = SdpaInt8(q, k, v, scales and zero points, mask, keep), rank 4 (sdpa_layout.cc absorbs head split and merge)
// Exact: integer products, float32 in the graph's order, P quantized where the graph says (shared/design.md 5, exact mode).
// fp8: sums of exact products in order (kernels/fp8/fp8.h); q, k, v, P and o are all integers or all fp8.
// Refuses: what sdpa refuses, operands that are not 8 bits per tensor.
#include <cmath>
#include <format>

#include "octavo/passes/fusions/codes.h"
#include "octavo/passes/fusions/sdpa_common.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

Verdict CheckScalarParams(const Match& m, Var node, const char* what) {
  const Node& n = m.at(node);
  for (size_t slot : {1u, 2u}) {
    const ir::Tensor* t = m.graph().ConstantOf(n.input(slot));
    if (t == nullptr || t->size() != 1) {
      return Illegal(std::format("{} is not quantized per tensor with a constant scale and zero point", what));
    }
  }
  return Ok();
}

// Of the scale of these codes. Codes of Where(keep, s, hidden) are those of s, and of hidden. Without a mask the matcher takes codes
// behind the scale for those behind the mask, which is the same but where the Where has some, too.
size_t SlotOf(const Match& m, const SdpaMiddle& mid, size_t place) {
  constexpr size_t kProduct = 16, kScaled = 18, kMasked = 20, kProbabilities = 22;  // ir/functions.h
  const bool nothing_between = !m.Has(mid.mask) && !m.Has(mid.cap) && !m.Has(mid.codes[1].quantized);
  if (place == 2 && m.Has(mid.codes[4].quantized) && nothing_between) return kScaled;
  constexpr size_t kSlots[] = {kProduct, kScaled, kMasked, kProbabilities, kMasked};
  return kSlots[place];
}

// What becomes of the score of hidden keys where it passes through codes.
float HiddenCode(const Match& m, const SdpaMiddle& mid) {
  const Node& n = m.at(mid.codes[4].quantized);
  const ir::Tensor &scale = *m.graph().ConstantOf(n.input(1)), &zero = *m.graph().ConstantOf(n.input(2));
  const auto [lo, hi] = quant::RangeOf(zero.dtype());
  const auto step = static_cast<float>(scale.GetDouble(0));
  const auto zero_point = static_cast<int32_t>(zero.GetDouble(0));
  const int32_t code =
      quant::QuantizeOne(m.scalar(mid.hidden), step, zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
  return quant::DequantizeOne(code, step, zero_point);
}

}  // namespace

Rule SdpaInt8(bool quantized_output) {
  RuleBuilder r(quantized_output ? "sdpa_int8" : "sdpa_int8_float_out", "Q/DQ attention -> SdpaInt8");
  const Spec int8{.dtypes = {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}};
  const Var q = r.Input("q", int8);
  const Var kt = r.Input("kT", int8);
  const Var v = r.Input("v", int8);
  const Var qd = r.MayEscape(r.Op("q_dequantized", Op::kDequantizeLinear, {q}));
  const Var kd = r.MayEscape(r.Op("kT_dequantized", Op::kDequantizeLinear, {kt}));
  const Var vd = r.MayEscape(r.Op("v_dequantized", Op::kDequantizeLinear, {v}));
  const SdpaMiddle mid = MatchScoresToProbabilities(r, qd, kd, true);
  const Var pq = r.MayEscape(r.Op("p_quantized", Op::kQuantizeLinear, {mid.p}));
  const Var pd = r.MayEscape(r.Op("p_dequantized", Op::kDequantizeLinear, {pq}));
  const Var product = r.Op("output", Op::kMatMul, {pd, vd});
  const Var oq = quantized_output ? r.Op("output_quantized", Op::kQuantizeLinear, {product}) : -1;
  r.Root(quantized_output ? oq : product);
  r.Guard([=](const Match& m) {
    for (const auto& [var, what] : {std::pair{qd, "q"}, {kd, "k"}, {vd, "v"}, {pq, "P"}, {pd, "P"}}) {
      if (Verdict bad = CheckScalarParams(m, var, what); !bad.ok()) return bad;
    }
    if (quantized_output) {
      if (Verdict bad = CheckScalarParams(m, oq, "the output"); !bad.ok()) return bad;
      if (!quant::IsCode8(m.graph().value(m[oq]).type.dtype)) return Illegal("the output is not quantized to 8 bits");
      if (Verdict bad = CheckSaturates(m, oq); !bad.ok()) return bad;
    }
    if (!quant::IsCode8(m.graph().value(m[pq]).type.dtype)) return Illegal("P is not quantized to 8 bits");
    if (Verdict bad = CheckSaturates(m, pq); !bad.ok()) return bad;
    const bool fp8 = quant::IsFp8(m.graph().value(m[q]).type.dtype);
    for (Var var : {kt, v, pq, quantized_output ? oq : pq}) {
      if (quant::IsFp8(m.graph().value(m[var]).type.dtype) != fp8)
        return Illegal("q, k, v, P and the output are partly fp8, partly integers");
    }
    const auto same = [&m](size_t slot, Var a, Var b) {
      return m.graph().ConstantOf(m.at(a).input(slot))->SameBits(*m.graph().ConstantOf(m.at(b).input(slot)));
    };
    if (!same(1, pq, pd) || !same(2, pq, pd))
      return Illegal("P is quantized and dequantized with different parameters");
    for (const SdpaMiddle::Codes& codes : mid.codes) {
      if (!m.Has(codes.dequantized)) continue;
      for (Var var : {codes.quantized, codes.dequantized}) {
        if (Verdict bad = CheckScalarParams(m, var, "the scores"); !bad.ok()) return bad;
      }
      if (!same(1, codes.quantized, codes.dequantized) || !same(2, codes.quantized, codes.dequantized))
        return Illegal("the scores are quantized and dequantized with different parameters");
      const double scale = m.graph().ConstantOf(m.at(codes.quantized).input(1))->GetDouble(0);
      if (&codes == &mid.codes[3] && !(scale > 0 && std::isfinite(scale)))
        return Illegal(std::format("the probabilities are quantized with the scale {}", scale));
      const DType type = m.graph().value(m[codes.quantized]).type.dtype;
      if (fp8 || !quant::IsInt8(type))
        return Illegal(std::format("the scores are quantized to {}; the kernel takes u8 and s8, in integer attention",
                                   Name(type)));
    }
    if (m.Has(mid.divisor) && fp8) return Illegal("the scores are divided, for which fp8 attention has no step");
    if (m.Has(mid.codes[4].quantized)) {
      if (m.Has(mid.codes[2].quantized) && SlotOf(m, mid, 2) == SlotOf(m, mid, 4))
        return Illegal("the scores are quantized before and behind the Where");
      if (!(HiddenCode(m, mid) < 0.0f))
        return Illegal(std::format("hidden keys get the score {}, which is not negative", HiddenCode(m, mid)));
    }
    return CheckHeads(m, q, kt, v, mid);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const auto param = [&m](Var node, size_t slot) { return m.at(node).input(slot); };
    ir::Attrs attrs = SdpaAttrs(m, q, kt, v, mid);
    if (m.Has(mid.divisor)) attrs.Set("divisor", m.scalar(mid.divisor));
    if (m.Has(mid.codes[4].quantized)) attrs.Set("hidden_value", HiddenCode(m, mid));
    const size_t rank = m.graph().value(m[q]).type.shape->size();
    std::vector<ValueId> in{Lifted(b, m[q], rank), {}, Lifted(b, m[v], rank)};
    for (Var node : {qd, kd, vd, pq}) {
      in.push_back(param(node, 1));
      in.push_back(param(node, 2));
    }
    in.push_back(quantized_output ? param(oq, 1) : ValueId{});
    in.push_back(quantized_output ? param(oq, 2) : ValueId{});
    AddMasks(b, m, mid, rank, &in);
    for (size_t place : {0u, 1u, 2u, 4u, 3u}) {  // as the slots are
      const Var node = mid.codes[place].quantized;
      if (!m.Has(node)) continue;
      in.resize(SlotOf(m, mid, place));
      in.push_back(param(node, 1));
      in.push_back(param(node, 2));
    }
    in[1] = Untransposed(b, Lifted(b, m[kt], rank));
    return Lowered(b, b.Create(Op::kSdpaInt8, std::move(in), attrs), rank);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
