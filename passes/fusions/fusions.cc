#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

const std::vector<Rule>& FloatRules() {
  static const auto* const rules = new std::vector<Rule>{
      LayerNorm(),  // the most first: what it does not take is left to the narrower forms
      LayerNorm(true, false),
      LayerNorm(false, false),
      LayerNormTerms(true),
      LayerNormTerms(false),
      RmsNorm(),
      RmsNorm(false),
      GeluErf(),
      GeluErfScaled(),
      GeluTanh(),
      GeluErfc(),
      GeluTwice(),
      HardSwish(),
      HardSwishGate(),
      HardSigmoid(),
      ConvPad(),
      BatchNorm(),
      ConvAffine(ir::Op::kMul),
      ConvAffine(ir::Op::kAdd),
      Power(2),
      Power(3),
      Power(0.5),
      Sdpa(),
      AttentionOp(),
      SdpaRepeat(ir::Op::kSdpa),
      SdpaSplitQ(ir::Op::kSdpa),
      SdpaSplitK(ir::Op::kSdpa),
      SdpaSplitV(ir::Op::kSdpa),
      SdpaMerge(ir::Op::kSdpa),
      SkipLayerNorm(ir::Op::kLayerNormalization),
      SkipLayerNorm(ir::Op::kRMSNormalization),
  };
  return *rules;
}

const std::vector<Rule>& QuantizedRules() {
  static const auto* const rules = new std::vector<Rule>{
      QuantizedSdpa(true, true),
      QuantizedSdpa(false, true),
      QuantizedSdpa(true),
      QuantizedSdpa(false),
      SdpaRepeat(ir::Op::kQuantizedSdpa),
      SdpaSplitQ(ir::Op::kQuantizedSdpa),
      SdpaSplitK(ir::Op::kQuantizedSdpa),
      SdpaSplitV(ir::Op::kQuantizedSdpa),
      SdpaMerge(ir::Op::kQuantizedSdpa),
      QuantizedLinear(true, true),  // the widest first: what it does not take is left to the narrower forms
      QuantizedLinear(true, false),
      QuantizedLinear(false, true),
      QuantizedLinear(false, false, true),
      QuantizedLinear(false, false),
      NormQuant(ir::Op::kSkipLayerNorm),
      NormQuant(ir::Op::kLayerNormalization),
      NormQuant(ir::Op::kRMSNormalization),
      LinearResidual(true),  // after the norms, which take the sum before them in their own pass
      LinearResidual(false),
      TwinNorm(ir::Op::kSkipLayerNorm),
      TwinNorm(ir::Op::kLayerNormalization),
      TwinNorm(ir::Op::kRMSNormalization),
      NormColumns(),
  };
  return *rules;
}

const std::vector<Rule>& BlockRules() {
  static const auto* const rules = new std::vector<Rule>{LinearBlocked(true), LinearBlocked(false)};
  return *rules;
}

const std::vector<Rule>& PackedRules() {
  static const auto* const rules = new std::vector<Rule>{QkvPacked()};
  return *rules;
}

const std::vector<Rule>& EpilogueRules() {
  static const auto* const rules = new std::vector<Rule>{LinearBias(), LinearActivation()};
  return *rules;
}

Result<bool> FuseFloat(Graph& graph, PassRun& run) { return pattern::ApplyRules(FloatRules(), graph, run); }
Result<bool> FuseQuantized(Graph& graph, PassRun& run) { return pattern::ApplyRules(QuantizedRules(), graph, run); }
Result<bool> FuseWeights(Graph& graph, PassRun& run) { return pattern::ApplyRules(BlockRules(), graph, run); }

}  // namespace octavo::passes::fusions
