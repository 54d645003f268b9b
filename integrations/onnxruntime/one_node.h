// A graph of one fused node, made from what another runtime tells of it: inference and the choice of a kernel ask a graph.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_ONE_NODE_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_ONE_NODE_H_

#include <span>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::integrations::onnxruntime {

// An input of the node; undefined dtype: absent.
struct Operand {
  ir::Type type;
  ir::Tensor constant;  // undefined: known when the node runs
};

struct OneNode {
  ir::Graph graph;
  ir::NodeId node;
};

// With the types of the outputs. `outputs`: which ones somebody reads. The error names what does not fit.
ir::Result<OneNode> MakeOneNode(ir::Op op, ir::Attrs attrs, std::span<const Operand> inputs,
                                const std::vector<bool>& outputs, std::string name);

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_ONE_NODE_H_
