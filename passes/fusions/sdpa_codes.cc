#include "octavo/passes/fusions/sdpa_codes.h"

#include <cmath>
#include <format>

#include "octavo/ir/functions.h"
#include "octavo/passes/fusions/codes.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;

namespace {

// Of the scale of these codes. Codes of Where(keep, s, hidden) are those of s, and of hidden. Without a mask the matcher takes codes
// behind the scale for those behind the mask, which is the same but where the Where has some, too.
size_t SlotOf(const Match& m, const SdpaMiddle& mid, size_t place) {
  const bool nothing_between = !m.Has(mid.mask) && !m.Has(mid.cap) && !m.Has(mid.codes[1].quantized);
  if (place == 2 && m.Has(mid.codes[4].quantized) && nothing_between) return ir::kSdpaScaledCodes;
  constexpr size_t kSlots[] = {ir::kSdpaProductCodes, ir::kSdpaScaledCodes, ir::kSdpaMaskedCodes, ir::kSdpaProbCodes,
                               ir::kSdpaMaskedCodes};
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

Verdict CheckOperandCodes(const Match& m, const SdpaOperands& o) {
  for (const auto& [var, what] : {std::pair{o.qd, "q"}, {o.kd, "k"}, {o.vd, "v"}, {o.pq, "P"}, {o.pd, "P"}}) {
    if (Verdict bad = CheckScalarParams(m, var, what); !bad.ok()) return bad;
  }
  if (o.quantized.valid()) {
    if (Verdict bad = CheckScalarParams(m, o.quantized, "the output"); !bad.ok()) return bad;
    if (Verdict bad = CheckOutputCodes(m, o.quantized); !bad.ok()) return bad;
  }
  if (m.dtype(o.values) != DType::kF32)
    return NoKernel("attention between its codes is not f32, for which there is no kernel");
  if (!quant::IsCode8(m.dtype(o.pq))) return Illegal("P is not quantized to 8 bits");
  if (Verdict bad = CheckSaturates(m, o.pq); !bad.ok()) return bad;
  for (Var var : {o.kt, o.v, o.pq, o.quantized.valid() ? o.quantized : o.pq}) {
    if (quant::IsFp8(m.dtype(var)) != quant::IsFp8(m.dtype(o.q)))
      return Illegal("q, k, v, P and the output are partly fp8, partly integers");
  }
  return Ok();
}

Verdict CheckProbabilities(const Match& m, const SdpaMiddle& mid, const SdpaOperands& o) {
  const bool fp8 = quant::IsFp8(m.dtype(o.q));
  if (!o.sums.valid())
    return SameZero(m, o.pq, o.pd) && (!fp8 || SameParams(m, o.pq, o.pd))
               ? Ok()
               : Illegal("P is quantized and dequantized with different parameters");
  const Graph& g = m.graph();
  if (fp8) return Illegal("codes of exponentials are fp8");
  if (!ReducesRows(g, m.at(mid.top))) return Illegal("the maximum of the scores is not that of each row");
  if (!ReducesRows(g, m.at(o.sums))) return Illegal("the sum of the codes is not that of each row");
  if (g.ConstantOf(m.at(o.pd).input(1))->GetDouble(0) != 1.0)
    return Illegal("codes of exponentials are not dequantized by 1");
  const ir::Tensor *zero = g.ConstantOf(m.at(o.pq).input(2)), *back = g.ConstantOf(m.at(o.pd).input(2));
  const int64_t lowest = zero != nullptr && zero->dtype() == DType::kS8 ? -128 : 0;
  const auto point = [](const ir::Tensor* t) { return t == nullptr ? int64_t{0} : t->GetInt(0); };
  if (point(zero) != lowest || point(back) != lowest)
    return Illegal("the zero point of exponentials is not the lowest code");
  return Ok();
}

Verdict CheckScoreCodes(const Match& m, const SdpaMiddle& mid, bool fp8) {
  for (const SdpaMiddle::Codes& codes : mid.codes) {
    if (!m.Has(codes.dequantized)) continue;
    for (Var var : {codes.quantized, codes.dequantized}) {
      if (Verdict bad = CheckScalarParams(m, var, "the scores"); !bad.ok()) return bad;
    }
    const bool same = &codes == &mid.codes[0] ? SameZero(m, codes.quantized, codes.dequantized)
                                              : SameParams(m, codes.quantized, codes.dequantized);
    if (!same) return Illegal("the scores are quantized and dequantized with different parameters");
    const double scale = m.graph().ConstantOf(m.at(codes.quantized).input(1))->GetDouble(0);
    if (&codes == &mid.codes[3] && !(scale > 0 && std::isfinite(scale)))
      return Illegal(std::format("the probabilities are quantized with the scale {}", scale));
    const DType type = m.graph().value(m[codes.quantized]).type.dtype;
    if (fp8 || !quant::IsInt8(type))
      return Illegal(
          std::format("the scores are quantized to {}; the kernel takes u8 and s8, in integer attention", Name(type)));
  }
  if (m.Has(mid.divisor) && fp8) return Illegal("the scores are divided, for which fp8 attention has no step");
  if (m.Has(mid.codes[4].quantized)) {
    if (m.Has(mid.codes[2].quantized) && SlotOf(m, mid, 2) == SlotOf(m, mid, 4))
      return Illegal("the scores are quantized before and behind the Where");
    if (!(HiddenCode(m, mid) < 0.0f))
      return Illegal(std::format("hidden keys get the score {}, which is not negative", HiddenCode(m, mid)));
  }
  return Ok();
}

void SetStep(const Match& m, Var quantized, Var dequantized, const char* name, ir::Attrs* attrs) {
  if (SameParams(m, quantized, dequantized)) return;
  attrs->Set(name, static_cast<float>(m.graph().ConstantOf(m.at(dequantized).input(1))->GetDouble(0)));
}

void AddScoreCodes(const Match& m, const SdpaMiddle& mid, ir::Attrs* attrs, std::vector<ValueId>* inputs) {
  if (m.Has(mid.divisor)) attrs->Set("divisor", m.scalar(mid.divisor));
  if (m.Has(mid.codes[0].dequantized))
    SetStep(m, mid.codes[0].quantized, mid.codes[0].dequantized, "product_step", attrs);
  if (m.Has(mid.codes[4].quantized)) attrs->Set("hidden_value", HiddenCode(m, mid));
  for (size_t place : {0u, 1u, 2u, 4u, 3u}) {  // as the slots are
    const Var node = mid.codes[place].quantized;
    if (!m.Has(node)) continue;
    inputs->resize(SlotOf(m, mid, place));
    inputs->push_back(m.at(node).input(1));
    inputs->push_back(m.at(node).input(2));
  }
}

}  // namespace octavo::passes::fusions
