#include "octavo/tests/ir_onnx/make_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace octavo::tests {

namespace fs = std::filesystem;

ModelMaker::ModelMaker(int64_t opset) {
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  graph().set_name("g");
}

void SetValueInfo(onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::string>& dims,
                  int dtype) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(dtype);
  tensor->mutable_shape();
  for (const std::string& d : dims) {
    auto* dim = tensor->mutable_shape()->add_dim();
    if (d == "?") continue;
    if (d.find_first_not_of("-0123456789") == std::string::npos) {
      dim->set_dim_value(std::stoll(d));
    } else {
      dim->set_dim_param(d);
    }
  }
}
ModelMaker& ModelMaker::Input(const std::string& name, const std::vector<std::string>& dims, int dtype) {
  SetValueInfo(*graph().add_input(), name, dims, dtype);
  return *this;
}
ModelMaker& ModelMaker::Output(const std::string& name, const std::vector<std::string>& dims, int dtype) {
  SetValueInfo(*graph().add_output(), name, dims, dtype);
  return *this;
}
onnx::NodeProto& AddNode(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& name) {
  auto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name(name);
  for (const auto& i : inputs) node.add_input(i);
  for (const auto& o : outputs) node.add_output(o);
  return node;
}
onnx::NodeProto& ModelMaker::Node(const std::string& op, const std::vector<std::string>& inputs,
                                  const std::vector<std::string>& outputs, const std::string& name) {
  return AddNode(graph(), op, inputs, outputs, name);
}
onnx::TensorProto& ModelMaker::Floats(const std::string& name, const std::vector<int64_t>& dims,
                                      const std::vector<float>& values) {
  auto& t = *graph().add_initializer();
  t.set_name(name);
  t.set_data_type(onnx::TensorProto::FLOAT);
  for (int64_t d : dims) t.add_dims(d);
  for (float v : values) t.add_float_data(v);
  return t;
}
onnx::TensorProto& ModelMaker::Ints(const std::string& name, const std::vector<int64_t>& values) {
  auto& t = *graph().add_initializer();
  t.set_name(name);
  t.set_data_type(onnx::TensorProto::INT64);
  t.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) t.add_int64_data(v);
  return t;
}
ir::Graph ModelMaker::Read() const {
  auto g = ir::onnx::ReadBytes(Bytes());
  if (!g) {
    ADD_FAILURE() << g.error().message;
    return {};
  }
  return std::move(*g);
}
std::string ModelMaker::Error() const {
  auto g = ir::onnx::ReadBytes(Bytes());
  if (g) {
    ADD_FAILURE() << "was read without an error";
    return {};
  }
  return g.error().message;
}

namespace {
onnx::AttributeProto& NewAttr(onnx::NodeProto& node, const std::string& name,
                              onnx::AttributeProto::AttributeType type) {
  auto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(type);
  return a;
}
}  // namespace

void Attr(onnx::NodeProto& node, const std::string& name, int64_t value) {
  NewAttr(node, name, onnx::AttributeProto::INT).set_i(value);
}
void Attr(onnx::NodeProto& node, const std::string& name, float value) {
  NewAttr(node, name, onnx::AttributeProto::FLOAT).set_f(value);
}
void Attr(onnx::NodeProto& node, const std::string& name, const std::string& value) {
  NewAttr(node, name, onnx::AttributeProto::STRING).set_s(value);
}
void Attr(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  auto& a = NewAttr(node, name, onnx::AttributeProto::INTS);
  for (int64_t v : values) a.add_ints(v);
}
void Attr(onnx::NodeProto& node, const std::string& name, const std::vector<float>& values) {
  auto& a = NewAttr(node, name, onnx::AttributeProto::FLOATS);
  for (float v : values) a.add_floats(v);
}
onnx::GraphProto& SubgraphOf(onnx::NodeProto& node, const std::string& name) {
  return *NewAttr(node, name, onnx::AttributeProto::GRAPH).mutable_g();
}

std::string Ops(const ir::Graph& graph) {
  std::string text;
  for (ir::NodeId id : graph.NodesInOrder()) {
    const ir::Node& n = graph.node(id);
    if (n.op == ir::Op::kConstant) continue;
    text += (text.empty() ? "" : " ") + (n.op == ir::Op::kOpaque ? n.op_type : std::string(ir::InfoOf(n.op).name));
  }
  return text;
}
const ir::Node& Find(const ir::Graph& graph, std::string_view op) {
  for (ir::NodeId id : graph.NodesInOrder()) {
    const ir::Node& n = graph.node(id);
    if (ir::InfoOf(n.op).name == op || (n.op == ir::Op::kOpaque && n.op_type == op)) return n;
  }
  ADD_FAILURE() << "no " << std::string(op) << " in " << Ops(graph);
  static const ir::Node none;
  return none;
}

TempFolder::TempFolder() {
  static int count = 0;
  path_ = fs::path(testing::TempDir()) / ("octavo_onnx_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  fs::create_directories(path_);
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}
std::vector<std::string> TempFolder::Files() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}
void WriteWhole(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
std::string ReadWhole(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace octavo::tests
