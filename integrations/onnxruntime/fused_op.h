// One of octavo's fused ops as ONNX Runtime wants a custom op: its name, its ports, and functions that make and run a kernel.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_FUSED_OP_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_FUSED_OP_H_

#include <string>

#include "octavo/integrations/onnxruntime/host.h"

namespace octavo::integrations::onnxruntime {

constexpr uint32_t kApiVersion = 17;  // the first with shape inference and ParallelFor for custom ops

// `name`: the op's, as a file spells it ("QuantizedLinear__2": the suffix tells the bodies of one file apart). Must outlive the session.
struct FusedOp : OrtCustomOp {
  FusedOp(ir::Op op, std::string name);

  ir::Op op;
  std::string name;
  size_t inputs, outputs;
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_FUSED_OP_H_
