// All fusions. One rule, one file of this folder; what rules share, and analysis that looks beyond a pattern, has files of its own. The ordered lists
// are in fusions.cc.
#ifndef OCTAVO_PASSES_FUSIONS_FUSIONS_H_
#define OCTAVO_PASSES_FUSIONS_FUSIONS_H_

#include <string>
#include <vector>

#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes::fusions {

using pattern::Rule;

// Float. Each changes float results by rounding at most; the bound is stated in the rule's file.
Rule LayerNorm(bool has_gamma = true, bool has_beta = true);  // gamma alone, beta never
Rule LayerNormTerms(bool has_beta);
Rule GeluErf();
Rule GeluErfScaled();
Rule GeluTanh();
Rule GeluErfc();
Rule GeluTwice();  // behind those whose products it would take apart
Rule HardSwish();
Rule HardSwishGate();
Rule HardSigmoid();
Rule Power(double exponent);  // 2, 3 or 0.5
Rule BatchNorm();
Rule ConvPad();
Rule ConvAffine(ir::Op op);  // kMul or kAdd behind it
Rule Sdpa();
Rule AttentionOp();
Rule RmsNorm(bool has_gamma = true);
Rule SkipLayerNorm(ir::Op op);  // kLayerNormalization or kRMSNormalization

// Layout of Sdpa and QuantizedSdpa: exact.
Rule SdpaSplitQ(ir::Op op);
Rule SdpaSplitK(ir::Op op);
Rule SdpaSplitV(ir::Op op);
Rule SdpaRepeat(ir::Op op);
Rule SdpaMerge(ir::Op op);

// int8 on Q/DQ graphs: exact, bit for bit.
// `bias`: must be there. A rule that ends in the product itself would take it before the bias is seen.
Rule QuantizedLinear(bool quantized_output, bool activation, bool bias = false);
Rule LinearResidual(bool quantized_output);
Rule LinearBias();
Rule LinearActivation();
Rule LinearBlocked(bool bias);  // its body keeps every bit, its kernel rounds otherwise
Rule QuantizedSdpa(bool quantized_output, bool relative = false);
Rule NormQuant(ir::Op op);  // kLayerNormalization, kRMSNormalization or kSkipLayerNorm
Rule TwinNorm(ir::Op op);   // of one of these
Rule NormColumns();
Rule QkvPacked();

// The ordered lists.
const std::vector<Rule>& FloatRules();
const std::vector<Rule>& QuantizedRules();
const std::vector<Rule>& BlockRules();
const std::vector<Rule>& PackedRules();
const std::vector<Rule>& EpilogueRules();

// Passes (pass.h): the rules above, and what chooses over the whole graph.
Result<bool> FuseFloat(Graph& graph, PassRun& run);
Result<bool> FuseQuantized(Graph& graph, PassRun& run);
// Causal and window masks -> attributes of the attention.
Result<bool> FuseWindows(Graph& graph, PassRun& run);
// Float attention in memory that does not grow with the keys; rounding differs.
Result<bool> UseFlash(Graph& graph, PassRun& run);
// Codes of probabilities become codes of exponentials, before int8 rules. relative_probs.cc
Result<bool> RelativeProbs(Graph& graph, PassRun& run);
// What rounding leaves of these codes goes to later keys. diffuse_probs.cc
Result<bool> DiffuseProbs(Graph& graph, PassRun& run);
// Products with weights in blocks -> LinearBlocked.
Result<bool> FuseWeights(Graph& graph, PassRun& run);
// Element-wise chains from codes of 8 bits to codes of 8 bits -> Lookup.
Result<bool> FuseTables(Graph& graph, PassRun& run);
// 2..8 QuantizedLinear of one activation, at least two of which feed one attention -> QuantizedQkv. PackedRules first.
Result<bool> FuseQuantizedQkv(Graph& graph, PassRun& run);
// The same as FuseQuantizedQkv in float: one MatMul over the concatenated weights and a Split.
Result<bool> FuseQkvFloat(Graph& graph, PassRun& run);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_FUSIONS_H_
