// What names a graph defines and which it reads from outside.
#include <onnx_messages.pb.h>

#include "octavo/ir/onnx/import.h"

namespace octavo::ir::onnx {

std::vector<std::string_view> FreeNames(const pb::GraphProto& graph) {
  std::unordered_set<std::string_view> known;  // defined here, or free and listed already
  for (const auto& input : graph.input()) known.insert(input.name());
  for (const auto& tensor : graph.initializer()) known.insert(tensor.name());
  for (const auto& node : graph.node()) {
    for (const std::string& output : node.output()) known.insert(output);
  }
  std::vector<std::string_view> free;
  const auto read = [&](std::string_view name) {
    if (!name.empty() && known.insert(name).second) free.push_back(name);
  };
  for (const auto& node : graph.node()) {
    for (const std::string& input : node.input()) read(input);
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      for (std::string_view name : FreeNames(attribute.g())) read(name);
    }
  }
  for (const auto& output : graph.output()) read(output.name());
  return free;
}

}  // namespace octavo::ir::onnx
