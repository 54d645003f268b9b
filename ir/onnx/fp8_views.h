// fp8 values through ops that ONNX gives no fp8 (Expand, Slice, Split, Concat, Gather), or ONNX Runtime no kernel (Shape, Size, Squeeze,
// Unsqueeze): a graph of octavo may have them, a file should not.
#ifndef OCTAVO_IR_ONNX_FP8_VIEWS_H_
#define OCTAVO_IR_ONNX_FP8_VIEWS_H_

#include "octavo/ir/graph.h"

namespace octavo::ir::onnx {

bool MovesFp8(const Graph& graph);
// Such an op reads floats, between two Casts: exact, for every fp8 value is a float. In subgraphs, too.
void CastMovedFp8(Graph& graph);
// The way back, where a file is read: such an op between such Casts moves the codes. Casts of 4 MB took ten times as long as the products beside them.
void UncastMovedFp8(Graph& graph);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_FP8_VIEWS_H_
