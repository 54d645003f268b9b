// KV caches as codes: a graph that takes past keys or values, appends to them, hands all of them out and quantizes them for
// attention does the same with codes, of which it then moves a quarter of the bytes and quantizes the new rows alone. What comes
// out of attention keeps its bits: codes are taken value by value, before or behind the append.
#ifndef OCTAVO_PASSES_QUANTIZE_CACHES_H_
#define OCTAVO_PASSES_QUANTIZE_CACHES_H_

#include <string>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

// A cache that a file takes and gives as codes: code = QuantizeLinear(value, scale, zero point).
struct CodedCache {
  std::string input, output;
  quant::QParams params;
};
// What the metadata "octavo.caches" says; entries that name no input and output of the graph are left out.
std::vector<CodedCache> CodedCaches(const Graph& graph);

// Runs behind `quantize`. Each cache, quantized or left, becomes a candidate of kind "cache".
Result<bool> QuantizeCaches(Graph& graph, PassRun& run);

// So that one set of data serves both kinds of file: floats that are given for a coded cache become codes, codes that come out
// floats.
void EncodeCaches(const std::vector<CodedCache>& caches, ir::TensorMap& inputs);
void DecodeCaches(const std::vector<CodedCache>& caches, ir::TensorMap& outputs);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_CACHES_H_
