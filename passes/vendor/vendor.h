// Graphs that arrive quantized: brought to the Q/DQ form that the int8 rules know, fused without touching a scale, and
// told why where that cannot be.
#ifndef OCTAVO_PASSES_VENDOR_VENDOR_H_
#define OCTAVO_PASSES_VENDOR_VENDOR_H_

#include "octavo/passes/pass.h"

namespace octavo::passes::vendor {

// Activations are quantized somewhere, statically or dynamically, or weights are.
bool IsQuantized(const Graph& graph);

// MatMuls and Gemms of two dequantized tensors, and products of integers as ops. The runtime computes each as the product of
// codes that it means, one by one.
int CountLooseProducts(const Graph& graph);

// Pass: MatMulInteger, Cast and Mul, and QLinearMatMul, become a MatMul of DequantizeLinears; exact. integer_form.cc
Result<bool> IntegerForm(Graph& graph, PassRun& run);

// Passes: the float rules but attention (Gelu, LayerNorm and their like, which int8 rules build upon), and the
// attention rules for what the int8 rules have left. The latter keep every bit of a run by the interpreter.
// around_attention.cc
Result<bool> FuseAroundAttention(Graph& graph, PassRun& run);
Result<bool> FuseAttentionLeft(Graph& graph, PassRun& run);

// Pass that changes nothing: why attention in this graph cannot be int8, in words of quantization. why_not_int8.cc
Result<bool> WhyNotInt8(Graph& graph, PassRun& run);

// QLinearMatMuls that are linears, groups of them, and attention between them: each left, with its reason. qoperator.cc
std::vector<Candidate> QOperatorCandidates(const Graph& graph);

}  // namespace octavo::passes::vendor

#endif  // OCTAVO_PASSES_VENDOR_VENDOR_H_
