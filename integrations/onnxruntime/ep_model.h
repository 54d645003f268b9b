// Nodes of a graph of ONNX Runtime as an ONNX model, which octavo reads as it reads files.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_MODEL_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_MODEL_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/integrations/onnxruntime/ep_abi.h"
#include "octavo/integrations/onnxruntime/host.h"

namespace octavo::integrations::onnxruntime {

// In an order in which they can run.
ir::Result<std::vector<const abi::Node*>> NodesOf(const abi::Graph* graph);
ir::Result<std::string> TypeOf(const abi::Node* node);                           // its op
ir::Result<std::vector<const abi::ValueInfo*>> InputsOf(const abi::Node* node);  // null: left out
ir::Result<std::vector<const abi::ValueInfo*>> ImplicitInputsOf(const abi::Node* node);
ir::Result<std::vector<const abi::ValueInfo*>> OutputsOf(const abi::Node* node);
ir::Result<std::vector<const abi::ValueInfo*>> OutputsOf(const abi::Graph* graph);
ir::Result<std::string> NameOf(const abi::ValueInfo* value);  // "" of null
ir::Result<bool> IsConstant(const abi::ValueInfo* value);

// Some nodes of a graph, by their places in NodesOf, and what they take from and give to the others.
struct Part {
  std::vector<size_t> nodes = {};
  std::vector<const abi::ValueInfo*> inputs = {}, outputs = {};
};
ir::Result<Part> PartOf(const abi::Graph* graph, std::vector<size_t> nodes);

// ir::onnx::ReadBytes reads it. Constants are inside; the name of node number i begins with its number.
ir::Result<std::string> ModelOf(const abi::Graph* graph, const Part& part);
size_t NumberOf(std::string_view name);

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_MODEL_H_
