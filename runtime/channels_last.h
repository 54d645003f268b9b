// Images whose channels stand last. oneDNN's convolutions read and write them so without turning them, each pixel's channels lie side by side for what
// comes behind, and tokens are such images already. A graph's convolutions, what runs on single elements between them, and movements are rewritten to
// [N, ..., C]; a convolution itself stays what ONNX says, between two Transposes that its step does without.
#ifndef OCTAVO_RUNTIME_CHANNELS_LAST_H_
#define OCTAVO_RUNTIME_CHANNELS_LAST_H_

#include <optional>

#include "octavo/runtime/tail.h"

namespace octavo::runtime {

// True: the graph was changed, and constants and types are to be found anew. Where convolutions, pools, Resizes and
// Transposes that go are two at least.
bool LayChannelsLast(const CompileContext& c, Graph& graph);

// A node between the Transposes that turn its first operand to [N, C, ...] and its result back.
struct Turned {
  ir::NodeId before, behind;
  ValueId x, y;  // channels last
};
std::optional<Turned> TurnedOf(const Graph& g, ir::NodeId id);

// Its step without a kernel: a node's operands but the first, which is turned.x, and turned.y.
Made MadeOf(const Turned& turned, const Graph& g, ir::NodeId id);
// The nodes of the step by the interpreter.
KernelPtr InterpretedOf(const Made& made, const CompileContext& c, Op op);

// The step of a node between two Transposes, with what stands behind a convolution; null: it is none, or nothing serves it.
Made MakeTurned(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);
Made MakeTurnedConv(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);
Made MakeTurnedPool(ir::NodeId id, const CompileContext& c);
Made MakeTurnedResize(ir::NodeId id, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CHANNELS_LAST_H_
