// Whether two graphs are the same, written without ir/text.h so that it is an independent witness.
#ifndef OCTAVO_TESTS_IR_ONNX_COMPARE_H_
#define OCTAVO_TESTS_IR_ONNX_COMPARE_H_

#include <string>

#include "octavo/ir/graph.h"

namespace octavo::tests {

// The first difference in words; empty: same nodes in the same order, names, types, attributes, constants, outputs,
// model information and origins.
std::string Difference(const ir::Graph& a, const ir::Graph& b);
// Structural self-check of one graph: order, uses, subgraph captures. Empty: fine.
std::string Defect(const ir::Graph& g);

}  // namespace octavo::tests

#endif  // OCTAVO_TESTS_IR_ONNX_COMPARE_H_
