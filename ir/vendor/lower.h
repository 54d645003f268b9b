// ONNX Runtime's contributed ops (domain com.microsoft) as standard ops: attention in its many layouts, and the others
// whose form depends on ranks and sizes. What every such op means is what ONNX Runtime's CPU kernels compute; tests
// compare with outputs that it gave. Ops that are two standard ops in a row, whatever the shapes: ir/onnx/vendor*.cc.
#ifndef OCTAVO_IR_VENDOR_LOWER_H_
#define OCTAVO_IR_VENDOR_LOWER_H_

#include <string>

#include "octavo/ir/graph.h"

namespace octavo::ir::vendor {

// What of a meaning that changed in place is wanted (onnx.h has the table).
struct LowerOptions {
  bool attention_before_122 = false;
};

// Every opaque com.microsoft node that has a standard form becomes it, in place; the others stay as they are, so that a
// file can be read, looked at and written back whatever it holds. Output names and origins are kept. Subgraphs are not
// entered. An error only where the wanted meaning cannot be kept.
Status Lower(Graph& graph, const LowerOptions& options = {});

// ONNX Attention nodes whose meaning is that of ONNX 1.18 to 1.21 in the corrected form: attention_order.cc. `typed`: a
// copy with inferred types.
Status AttentionBefore122(Graph& graph, const Graph& typed);

// ONNX Attention nodes with a window in the form without: attention_window.cc.
void AttentionWindows(Graph& graph);

// Why a com.microsoft node stayed: one sentence with op, attribute or input, and the way out. Empty: no such node.
std::string WhyOpaque(const Graph& graph, const Node& node);

}  // namespace octavo::ir::vendor

#endif  // OCTAVO_IR_VENDOR_LOWER_H_
