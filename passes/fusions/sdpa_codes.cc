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

Verdict CheckScoreCodes(const Match& m, const SdpaMiddle& mid, bool fp8) {
  for (const SdpaMiddle::Codes& codes : mid.codes) {
    if (!m.Has(codes.dequantized)) continue;
    for (Var var : {codes.quantized, codes.dequantized}) {
      if (Verdict bad = CheckScalarParams(m, var, "the scores"); !bad.ok()) return bad;
    }
    if (!SameParams(m, codes.quantized, codes.dequantized))
      return Illegal("the scores are quantized and dequantized with different parameters");
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

void AddScoreCodes(const Match& m, const SdpaMiddle& mid, ir::Attrs* attrs, std::vector<ValueId>* inputs) {
  if (m.Has(mid.divisor)) attrs->Set("divisor", m.scalar(mid.divisor));
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
