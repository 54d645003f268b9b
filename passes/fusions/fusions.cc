#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

const std::vector<Rule>& FloatRules() {
  static const auto* const rules = new std::vector<Rule>{
      LayerNorm(),
      RmsNorm(),
      GeluErf(),
      GeluErfScaled(),
      GeluTanh(),
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

const std::vector<Rule>& Int8Rules() {
  static const auto* const rules = new std::vector<Rule>{
      SdpaInt8(true, true),
      SdpaInt8(false, true),
      SdpaInt8(true),
      SdpaInt8(false),
      SdpaRepeat(ir::Op::kSdpaInt8),
      SdpaSplitQ(ir::Op::kSdpaInt8),
      SdpaSplitK(ir::Op::kSdpaInt8),
      SdpaSplitV(ir::Op::kSdpaInt8),
      SdpaMerge(ir::Op::kSdpaInt8),
      LinearInt8(true, true),  // the widest first: what it does not take is left to the narrower forms
      LinearInt8(true, false),
      LinearInt8(false, true),
      LinearInt8(false, false, true),
      LinearInt8(false, false),
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

Result<bool> FuseFloat(Graph& graph, PassRun& run) { return pattern::ApplyRules(FloatRules(), graph, run); }
Result<bool> FuseInt8(Graph& graph, PassRun& run) { return pattern::ApplyRules(Int8Rules(), graph, run); }
Result<bool> FuseWeights(Graph& graph, PassRun& run) { return pattern::ApplyRules(BlockRules(), graph, run); }

}  // namespace octavo::passes::fusions
