// Compiled parts as EPContext nodes of com.microsoft: a session with `ep.context_enable` writes a model of them, and a later one skips reading, fusing and
// quantizing the nodes that they stand for.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_CONTEXT_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_CONTEXT_H_

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/integrations/onnxruntime/ep_abi.h"
#include "octavo/integrations/onnxruntime/host.h"

namespace octavo::integrations::onnxruntime {

ir::Result<bool> IsContext(const abi::Node* node);  // of octavo's

// The model that a node of octavo's carries or that lies in a file beside the node's own model, which is in `folder` ("": nobody knows).
// Nothing: the node is another one, or another provider's.
ir::Result<std::optional<std::string>> ContextOf(const abi::Node* node, const std::filesystem::path& folder);

// A node with the ports of `fused` that carries `model`, or where `beside` names a model file, refers to a file beside that, which is written. ONNX
// Runtime takes it over.
ir::Result<abi::Node*> ContextNode(const abi::Node* fused, std::string_view model, const std::filesystem::path& beside);

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_CONTEXT_H_
