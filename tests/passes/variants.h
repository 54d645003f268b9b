// Random graphs around what the rules look for, varied in all that ONNX allows: ranks, dims of 1, where a constant broadcasts, element types,
// axes from the end, optional outputs, inner values as outputs, shapes that are known, symbolic or not declared. Each graph is run while it is made, so
// that it is valid for certain.
#ifndef OCTAVO_TESTS_PASSES_VARIANTS_H_
#define OCTAVO_TESTS_PASSES_VARIANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::passes {

struct Variant {
  std::string kind;  // "gelu", "attention", ...
  ir::Graph graph;
  ir::TensorMap inputs;
  std::vector<ir::Tensor> outputs;  // by the interpreter
  bool quantized = false;           // has codes of its own
};

Variant MakeVariant(uint64_t seed);

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_VARIANTS_H_
