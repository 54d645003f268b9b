// A model file as programs run it.
#ifndef OCTAVO_API_OPEN_H_
#define OCTAVO_API_OPEN_H_

#include <string>

#include "octavo/ir/graph.h"

namespace octavo::api {

struct Opened {
  ir::Graph graph;
  std::string note;  // one sentence where something stays slow, with the way out; empty: nothing to say
};

// The graph fused as `octavo optimize` does it without calibration: recipe "quantized" where the file is quantized, which keeps
// its integers, else "float" (without the merging of Q, K and V, which pays in int8 only), which keeps the numbers but for the
// rounding of sums. Files that octavo wrote are what their pipeline made of them and stay. What cannot be fused runs as it
// stands, with a note: whatever goes wrong, the model is not lost. Throws nothing but std::bad_alloc.
Opened FuseToRun(ir::Graph graph);

// CompileOptions::packed_file for a model in a file: beside it, model.octavo-packed for model.onnx.
std::string PackedBeside(const std::string& model);

}  // namespace octavo::api

#endif  // OCTAVO_API_OPEN_H_
