// One rule per op: looks at the node, refuses with a sentence before anything is made, or builds the standard form.
#ifndef OCTAVO_IR_VENDOR_RULES_H_
#define OCTAVO_IR_VENDOR_RULES_H_

#include "octavo/ir/vendor/site.h"

namespace octavo::ir::vendor {

Status PackedAttention(Site& s);     // attention.cc: Attention, QAttention
Status MultiHeadAttention(Site& s);  // multi_head.cc
Status DecoderMaskedMultiHeadAttention(Site& s);
Status GroupQueryAttention(Site& s);  // group_query.cc
Status RotaryEmbedding(Site& s);      // rotary.cc
Status EmbedLayerNorm(Site& s);       // embed.cc: EmbedLayerNormalization, QEmbedLayerNormalization
Status FusedMatMul(Site& s);          // fused_matmul.cc: FusedMatMul, TransposeMatMul
Status FusedGemm(Site& s);
Status DynamicQuantizeMatMul(Site& s);  // integer_matmul.cc
Status MatMulIntegerToFloat(Site& s);
Status MatMulNBits(Site& s);   // nbits.cc
Status QLinearWhere(Site& s);  // qlinear.cc
Status QLinearReduceMean(Site& s);
Status QLinearPool(Site& s);           // QLinearAveragePool, QLinearGlobalAveragePool
Status GatherBlockQuantized(Site& s);  // lookup.cc
Status MatMulBnb4(Site& s);
Status MixtureOfExperts(Site& s);  // experts.cc
Status QuantizedExperts(Site& s);
Status LinearAttention(Site& s);  // linear_attention.cc
Status CausalConvWithState(Site& s);
Status LinearAttentionGate(Site& s);
Status GatedRmsNorm(Site& s);
Status ScaledSilu(Site& s);
Status QuickGelu(Site& s);  // small.cc
Status BiasAdd(Site& s);
Status ExpandDims(Site& s);
Status Range(Site& s);
Status GridSample(Site& s);
Status FusedConv(Site& s);
Status SkipRmsNorm(Site& s);

}  // namespace octavo::ir::vendor

#endif  // OCTAVO_IR_VENDOR_RULES_H_
