// Which ONNX opset and IR version a graph needs.
#ifndef OCTAVO_IR_ONNX_OPSET_H_
#define OCTAVO_IR_ONNX_OPSET_H_

#include <cstdint>
#include <functional>

#include "octavo/ir/graph.h"

namespace octavo::ir::onnx {

constexpr int64_t kOldestOpset =
    1;  // of a file; what it has of ops before kMinOpset is brought to that (upgrade_before7.cc)
constexpr int64_t kMinOpset = 7;    // numpy broadcasting begins here
constexpr int64_t kFormOpset = 18;  // ops.def states the forms of this opset
constexpr int64_t kMaxOpset = 28;
// Of the domain octavo in files: raised with each release that changes what its ops are, so that an older reader says what it lacks (domain_test.cc).
constexpr int64_t kOctavoVersion = 1;

struct Needs {
  int64_t opset = kFormOpset;
  int64_t ir_version = 8;  // model-local functions
};
// Over the nodes, types and subgraphs.
Needs NeedsOf(const Graph& graph);

// Whether it has ops of octavo's own, which are functions of a domain in the file.
bool UsesOctavo(const Graph& graph);

// Every subgraph attribute of the node, in attribute order.
void ForEachSubgraph(const Node& node, const std::function<void(const std::string& name, const GraphRef&)>& visit);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_OPSET_H_
