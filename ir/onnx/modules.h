// The modules of a model of torch, as its exporter tells them in the metadata of nodes: pkg.torch.onnx.name_scopes, pkg.torch.onnx.class_hierarchy, or
// namespace alone. A node is called after its module, "encoder.layer.0.attention.self.query/node_linear", in tables and globs; what it becomes is written with
// the module that its sources share, so that viewers draw the hierarchy.
#ifndef OCTAVO_IR_ONNX_MODULES_H_
#define OCTAVO_IR_ONNX_MODULES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo_onnx {
class NodeProto;
}

namespace octavo::ir::onnx {

class Modules {
 public:
  // Metadata of the model that keeps them between reading and writing, and in octavo's files: JSON, path -> class.
  static constexpr std::string_view kKey = "octavo.modules";

  Modules() = default;
  explicit Modules(const std::map<std::string, std::string>& metadata);
  void Keep(std::map<std::string, std::string>& metadata) const;

  // Takes down the modules that the node stands in; the path of the innermost, empty: of none.
  std::string Read(const ::octavo_onnx::NodeProto& node);
  // The path in a name that Read's path was put before.
  std::string_view PathIn(std::string_view source) const;
  // Tells `proto`, which has its name, the module that all these sources share; those that are in none do not count.
  void Write(const std::vector<std::string>& origin, ::octavo_onnx::NodeProto* proto) const;

 private:
  std::map<std::string, std::string, std::less<>> classes_;  // by path; "" is the model
};

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_MODULES_H_
