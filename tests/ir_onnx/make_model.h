// Small models in a few lines, for tests.
#ifndef OCTAVO_TESTS_IR_ONNX_MAKE_MODEL_H_
#define OCTAVO_TESTS_IR_ONNX_MAKE_MODEL_H_

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/onnx/onnx.h"

namespace octavo::tests {

struct ModelMaker {
  onnx::ModelProto model;

  explicit ModelMaker(int64_t opset);
  onnx::GraphProto& graph() { return *model.mutable_graph(); }
  // dim "?" is unnamed, a number a number, else a symbol.
  ModelMaker& Input(const std::string& name, const std::vector<std::string>& dims, int dtype = 1);
  ModelMaker& Output(const std::string& name, const std::vector<std::string>& dims, int dtype = 1);
  onnx::NodeProto& Node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& name = {});
  onnx::TensorProto& Floats(const std::string& name, const std::vector<int64_t>& dims,
                            const std::vector<float>& values);
  onnx::TensorProto& Ints(const std::string& name, const std::vector<int64_t>& values);
  std::string Bytes() const { return model.SerializeAsString(); }
  // The graph, or a test failure and an empty graph.
  ir::Graph Read() const;
  // The error, or a test failure and an empty sentence.
  std::string Error() const;
};

void SetValueInfo(onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::string>& dims, int dtype);
onnx::NodeProto& AddNode(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& name = {});
void Attr(onnx::NodeProto& node, const std::string& name, int64_t value);
void Attr(onnx::NodeProto& node, const std::string& name, float value);
void Attr(onnx::NodeProto& node, const std::string& name, const std::string& value);
void Attr(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values);
void Attr(onnx::NodeProto& node, const std::string& name, const std::vector<float>& values);
onnx::GraphProto& SubgraphOf(onnx::NodeProto& node, const std::string& name);

// The op names in order, constants left out: "Flatten Softmax Reshape".
std::string Ops(const ir::Graph& graph);
// The first node of that op.
const ir::Node& Find(const ir::Graph& graph, std::string_view op);

// A folder of its own under the test's temporary folder, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> Files() const;  // names, sorted

 private:
  std::filesystem::path path_;
};
void WriteWhole(const std::filesystem::path& path, const std::string& bytes);
std::string ReadWhole(const std::filesystem::path& path);

}  // namespace octavo::tests

#endif  // OCTAVO_TESTS_IR_ONNX_MAKE_MODEL_H_
