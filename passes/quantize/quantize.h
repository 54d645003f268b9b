// Static int8 and fp8: where Q/DQ go, and putting them there. The graph has been through the canonical passes and float fusions.
//
//  Linear   MatMul(x, W[K,N] constant): x u8 affine per tensor, W s8 symmetric per output column
//  Sdpa     q, k, v and the output u8 affine per tensor; the probabilities u8 with scale 1/255, zero point 0; scores and
//           mask stay float (quantizing them is what costs the peers their accuracy)
//  Table    a float table of at least 64 KB that is only gathered from: s8, one scale per row
// With parameters of an fp8 type the same in that type, symmetric: weights per output column, probabilities with scale 1/448
// (1/57344); tables stay s8.
// Everything else stays float. What is written is a plain Q/DQ graph; the int8 fusions take it from there.
#ifndef OCTAVO_PASSES_QUANTIZE_QUANTIZE_H_
#define OCTAVO_PASSES_QUANTIZE_QUANTIZE_H_

#include <optional>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

struct Sites {
  std::vector<NodeId> linears;     // MatMul
  std::vector<NodeId> attentions;  // Sdpa
  std::vector<NodeId> tables;      // Gather, or GatherND of experts
  std::vector<ValueId> values;     // activations whose range must be known, each once, in graph order
};
// Without the nodes that keep_float names.
Sites FindSites(const Graph& graph, const std::vector<std::string>& keep_float = {});
// Whether the node, or one that it was made of, has one of these names, as it is or ByModules; * stands for any letters, ? for one.
bool IsNamed(const std::vector<std::string>& names, const Node& node);

// Uses run.evidence.qparams. A site whose activation has no parameters stays float, with a line in run.log; Linears of run.dynamic
// stay for the pass of that name.
Result<bool> Quantize(Graph& graph, PassRun& run);
// Float tables that Gather reads along axis 0, embeddings and experts: part of Quantize, also a pass of its own.
Result<bool> QuantizeTables(Graph& graph, PassRun& run);
// Heads whose codes are those of a table read it (tied.cc).
bool TieTables(Graph& graph);
// tables.cc: a Gather of rows of a float matrix that is large enough, or of experts' matrices (passes/experts.h) that are.
bool IsFloatTable(const Graph& g, const Node& n);
bool AreFloatExperts(const Graph& g, NodeId gather);
// In s8, with one scale for all elements along the axis `summed`. Empty: it has values that are not finite.
std::optional<ColumnWeights> QuantizeTable(const ir::Tensor& t, int64_t summed);

// Adds to run.dynamic the Linears to whose rows one scale for all does harm: choose_rows.cc. Uses run.evidence.channels and qparams.
constexpr double kRowDb =
    22;  // the least at which Gemma 3 270M keeps 1 %; two such Linears in MiniLM take 4 % of its time
Result<bool> ChooseRows(Graph& graph, PassRun& run);

// Takes off keys what all have in common: center_keys.cc. Uses run.evidence.channels and qparams.
Result<bool> CenterKeys(Graph& graph, PassRun& run);

// Turns the residual stream by an orthogonal matrix, and back in what reads it: rotate_stream.cc.
constexpr int64_t kRotationWorth = 50;  // so many times the weights of the products that come in must turn
Result<bool> RotateStream(Graph& graph, PassRun& run);

// Turns values of attention by an orthogonal matrix, and back in the product behind it: rotate_values.cc.
Result<bool> RotateValues(Graph& graph, PassRun& run);

// A product whose halves meet again in a multiplication (SwiGLU, GeGLU) is made for each half: gated.cc.
Result<bool> Gated(Graph& graph, PassRun& run);

// A convolution is a Linear over the channels of its windows: conv_linears.cc.
Result<bool> ConvLinears(Graph& graph, PassRun& run);

// Evens out channels of queries and keys: balance_keys.cc. Uses run.evidence.channels and qparams.
Result<bool> BalanceKeys(Graph& graph, PassRun& run);

// Evens out the channels that norms and activations hand to Linears (SmoothQuant): smooth.cc. Uses run.evidence.channels.
Result<bool> Smooth(Graph& graph, PassRun& run);

// s8 in -127..127, symmetric, so that the certificate of `PackWeights` has a chance and -w is representable (limit: 64 in place of 127,
// and every panel has it); or fp8. Empty: it has values that are not finite.
std::optional<std::vector<float>> ColumnScales(const ir::Tensor& w, ir::DType dtype, int limit);
std::optional<ColumnWeights> QuantizeColumns(const ir::Tensor& w, ir::DType dtype = ir::DType::kS8, int limit = 127);
// In s8 or fp8; codes that FitWeights found for them.
std::optional<ColumnWeights> QuantizeWeight(const ir::Tensor& w, ir::DType dtype, const PassRun& run);
// Finds such codes for all Linears where run.evidence.moments is there. Changes run.fitted alone. fit_weights.cc
Result<bool> FitWeights(Graph& graph, PassRun& run);
// Int8 weights of the passes behind it get 7 of their 8 bits, which CPUs without VNNI multiply by vpmaddubsw without saturating.
// The name is ONNX Runtime's and PyTorch's; there right sums depend on it, here speed alone.
Result<bool> ReduceRange(Graph& graph, PassRun& run);

// A model in f16 or bf16 becomes one in f32, which the passes behind it quantize. to_f32.cc
Result<bool> ToF32(Graph& graph, PassRun& run);

// Weights to s8 per column, activations quantized at run time a row; needs no calibration. dynamic.cc
Result<bool> Dynamic(Graph& graph, PassRun& run);
// The same with weights of 4 bits. Uses run.evidence.moments where there are some. dynamic4.cc
Result<bool> Dynamic4(Graph& graph, PassRun& run);
// Weights alone, in blocks; needs no calibration. Weights4 uses run.evidence.moments where there are some. weights.cc
constexpr int64_t kBlock4 = 32, kBlock8 = 64;  // rows of a block, unless the option `block` says otherwise
Result<bool> Weights4(Graph& graph, PassRun& run);
Result<bool> Weights4Symmetric(Graph& graph, PassRun& run);
Result<bool> Weights8(Graph& graph, PassRun& run);
// Products with such weights quantize their activations at run time. dynamic_blocks.cc
Result<bool> DynamicBlocks(Graph& graph, PassRun& run);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_QUANTIZE_H_
