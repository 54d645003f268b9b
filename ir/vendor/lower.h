// ONNX Runtime's contributed ops (domain com.microsoft) as standard ops: attention in its many layouts, and the others whose
// form depends on ranks and sizes. What every such op means is what ONNX Runtime's CPU kernels compute; tests compare with
// outputs that it gave. Ops that are two standard ops in a row, whatever the shapes: ir/onnx/vendor*.cc.
#ifndef OCTAVO_IR_VENDOR_LOWER_H_
#define OCTAVO_IR_VENDOR_LOWER_H_

#include <string>

#include "octavo/ir/graph.h"

namespace octavo::ir::vendor {

// Every opaque com.microsoft node that has a standard form becomes it, in place; the others stay as they are, so that a file
// can be read, looked at and written back whatever it holds. Output names and origins are kept. Subgraphs are not entered.
void Lower(Graph& graph);

// Why a com.microsoft node stayed: one sentence with op, attribute or input, and the way out. Empty: no such node.
std::string WhyOpaque(const Graph& graph, const Node& node);

}  // namespace octavo::ir::vendor

#endif  // OCTAVO_IR_VENDOR_LOWER_H_
