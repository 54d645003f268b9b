// The reference interpreter: plain loops, THE meaning of every op. Slow on purpose, but not stupid: the runtime uses
// EvalNode for ops that have no kernel.
//
// Numbers: a MatMul or Gemm whose two operands come from DequantizeLinear, also through views
// (Reshape, Transpose, Slice, Split, Concat of equal scales, Expand, Squeeze, Unsqueeze, Flatten, Gather, Identity), is the exact
// integer product sum((a-za)*(w-zw)) in int32, then float(acc) * (sa * sw[n]). Everything else between it and the next
// QuantizeLinear is float32 in the graph's order. octavo's own ops mean their body (functions.h).
#ifndef OCTAVO_IR_INTERPRET_H_
#define OCTAVO_IR_INTERPRET_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir {

// The 8-bit codes (integers or fp8) behind a float tensor that a DequantizeLinear made, as far as views could carry them.
struct QuantForm {
  Tensor q;           // codes, same shape as the float tensor
  Tensor scale;       // f32: scalar, or [shape[axis]]
  Tensor zero_point;  // dtype of q: scalar, or like scale; undefined: zero
  int64_t axis = -1;  // -1: per tensor
};

// What flows along an edge.
struct RtValue {
  Tensor tensor;
  std::shared_ptr<const QuantForm> quant;  // null: no integers behind it
};

// Asked every so often while bodies of Loop and Scan run; true ends the evaluation with an error.
using Interrupted = std::function<bool()>;

// One node (of any op except Opaque) on given inputs; inputs of absent optionals are undefined tensors. Returns one
// value per output slot (undefined for slots nobody wants). Given operands of the element types and ranks that the graph knows, these
// have theirs, or it is an error: whoever chose kernels by these types may trust them. Errors name the op, the reason and the shapes.
Result<std::vector<RtValue>> EvalNode(const Graph& graph, const Node& node, std::span<const RtValue> inputs,
                                      const Interrupted& interrupted = {});
// Whether EvalNode implements the op (Opaque: false).
bool CanEval(Op op);

using TensorMap = std::map<std::string, Tensor>;

struct InterpretOptions {
  // Called after each node with its outputs, if set.
  std::function<void(const Node&, std::span<const RtValue>)> on_node = {};
  Interrupted interrupted = {};
};

// Runs the whole graph. `inputs` must name every graph input with the right dtype and rank. Returns outputs in the
// graph's order.
Result<std::vector<Tensor>> Interpret(const Graph& graph, const TensorMap& inputs,
                                      const InterpretOptions& options = {});

}  // namespace octavo::ir

#endif  // OCTAVO_IR_INTERPRET_H_
