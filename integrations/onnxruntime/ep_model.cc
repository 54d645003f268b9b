#include "octavo/integrations/onnxruntime/ep_model.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "octavo/integrations/onnxruntime/ep_wire.h"

namespace octavo::integrations::onnxruntime {

namespace {

using ir::Result;
using ir::Status;
using Values = std::vector<const abi::ValueInfo*>;

const abi::Tail& Tail() { return abi::TailOf(Api()); }

// The two calls that give a list: how many, then all of them.
template <typename T, typename Owner>
Result<std::vector<const T*>> ListOf(const Owner* owner, OrtStatus* (*count)(const Owner*, size_t*),
                                     OrtStatus* (*get)(const Owner*, const T**, size_t)) {
  size_t n = 0;
  OCTAVO_TRY_STATUS(StatusOf(count(owner, &n)));
  std::vector<const T*> list(n);
  if (n > 0) OCTAVO_TRY_STATUS(StatusOf(get(owner, list.data(), n)));
  return list;
}

template <typename Owner>
Result<std::string> TextOf(const Owner* owner, OrtStatus* (*get)(const Owner*, const char**)) {
  const char* text = "";
  OCTAVO_TRY_STATUS(StatusOf(get(owner, &text)));
  return std::string(text == nullptr ? "" : text);
}

// Field numbers are those of onnx.proto.
Result<Wire> TensorProto(const OrtValue* value, const std::string& name) {
  OCTAVO_TRY(const ir::Tensor tensor, Borrow(value));
  Wire wire;
  if (tensor.dtype() == ir::DType::kString) return ir::Fail("constant '{}' is text", name);
  for (const int64_t d : tensor.shape()) wire.Int(1, d);
  wire.Int(2, static_cast<int64_t>(tensor.dtype()));
  wire.Bytes(8, name);
  wire.Bytes(9, {reinterpret_cast<const char*>(tensor.data()), tensor.byte_size()});
  return wire;
}

Result<Wire> ValueProto(const abi::ValueInfo* value) {
  Wire wire, type, tensor;
  OCTAVO_TRY(const std::string name, NameOf(value));
  wire.Bytes(1, name);
  const OrtTypeInfo* info = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Tail().GetValueInfoTypeInfo(value, &info)));
  const OrtTensorTypeAndShapeInfo* of_tensor = nullptr;
  if (info != nullptr) OCTAVO_TRY_STATUS(StatusOf(Api().CastTypeInfoToTensorInfo(info, &of_tensor)));
  if (of_tensor == nullptr) return ir::Fail("value '{}' is no tensor", name);
  OCTAVO_TRY(const ir::Type known, TypeOf(of_tensor, false));
  tensor.Int(1, static_cast<int64_t>(known.dtype));
  if (known.shape) {
    Wire shape;
    for (const ir::Dim& d : *known.shape) {
      Wire dim;
      if (d.is_number()) {
        dim.Int(1, d.number());
      } else if (d.known()) {
        dim.Bytes(2, d.ToString());
      }
      shape.Message(1, dim);
    }
    tensor.Message(2, shape);
  }
  type.Message(1, tensor);
  wire.Message(2, type);
  return wire;
}

template <typename T>
Result<std::vector<T>> ReadAttr(const OrtOpAttr* attr, abi::AttrType type) {
  size_t bytes = 0;
  const auto kind = static_cast<OrtOpAttrType>(type);
  std::vector<T> data(1);
  if (StatusOf(Api().ReadOpAttr(attr, kind, data.data(), sizeof(T), &bytes))) {
    data.resize(bytes / sizeof(T));
    return data;
  }
  data.resize((bytes + sizeof(T) - 1) / sizeof(T));  // it failed for want of room, and says how much it takes
  if (bytes > 0) OCTAVO_TRY_STATUS(StatusOf(Api().ReadOpAttr(attr, kind, data.data(), bytes, &bytes)));
  return data;
}

// Numbers of AttributeProto.AttributeType.
enum : int64_t {
  kProtoFloat = 1,
  kProtoInt,
  kProtoString,
  kProtoTensor,
  kProtoGraph,
  kProtoFloats,
  kProtoInts,
  kProtoStrings
};

Status AddText(const OrtOpAttr* attr, abi::AttrType type, Wire& wire) {
  OCTAVO_TRY(const std::vector<char> text, ReadAttr<char>(attr, type));
  std::string_view all(text.data(), text.size());
  if (type == abi::kString) {
    if (!all.empty() && all.back() == '\0') all.remove_suffix(1);
    wire.Bytes(4, all);
    return {};
  }
  while (!all.empty()) {  // each ends with a zero
    const size_t end = std::min(all.find('\0'), all.size());
    wire.Bytes(9, all.substr(0, end));
    all.remove_prefix(std::min(end + 1, all.size()));
  }
  return {};
}

// Not of subgraphs, which Node_GetSubgraphs gives.
Status AddAttr(const OrtOpAttr* attr, Wire& node) {
  int type = 0;
  OCTAVO_TRY_STATUS(StatusOf(Tail().OpAttr_GetType(attr, &type)));
  if (type == abi::kGraph) return {};
  OCTAVO_TRY(const std::string name, TextOf(attr, Tail().OpAttr_GetName));
  Wire wire;
  wire.Bytes(1, name);
  if (type == abi::kInt || type == abi::kInts) {
    OCTAVO_TRY(const auto ints, ReadAttr<int64_t>(attr, static_cast<abi::AttrType>(type)));
    for (const int64_t i : ints) wire.Int(type == abi::kInt ? 3 : 8, i);
    wire.Int(20, type == abi::kInt ? kProtoInt : kProtoInts);
  } else if (type == abi::kFloat || type == abi::kFloats) {
    OCTAVO_TRY(const auto floats, ReadAttr<float>(attr, static_cast<abi::AttrType>(type)));
    for (const float f : floats) wire.Float(type == abi::kFloat ? 2 : 7, f);
    wire.Int(20, type == abi::kFloat ? kProtoFloat : kProtoFloats);
  } else if (type == abi::kString || type == abi::kStrings) {
    OCTAVO_TRY_STATUS(AddText(attr, static_cast<abi::AttrType>(type), wire));
    wire.Int(20, type == abi::kString ? kProtoString : kProtoStrings);
  } else if (type == abi::kTensor) {
    OrtValue* value = nullptr;
    OCTAVO_TRY_STATUS(StatusOf(Tail().OpAttr_GetTensorAttributeAsOrtValue(attr, &value)));
    const std::unique_ptr<OrtValue, Releaser<OrtValue, &OrtApi::ReleaseValue>> owner(value);
    OCTAVO_TRY(const Wire tensor, TensorProto(value, ""));
    wire.Message(5, tensor);
    wire.Int(20, kProtoTensor);
  } else {
    return ir::Fail("attribute '{}' is of a kind that only ONNX Runtime knows", name);
  }
  node.Message(5, wire);
  return {};
}

class Writer {
 public:
  explicit Writer(std::string prefix) : prefix_(std::move(prefix)) {}

  // `scope`: names of constants that a graph around this one has written already.
  Result<Wire> GraphProto(const abi::Graph* graph, const Part& part, std::set<std::string> scope) {
    Wire wire;
    OCTAVO_TRY(const auto nodes, NodesOf(graph));
    for (const size_t i : part.nodes) {
      OCTAVO_TRY(auto used, InputsOf(nodes[i]));
      OCTAVO_TRY(const auto outer, ImplicitInputsOf(nodes[i]));
      used.insert(used.end(), outer.begin(), outer.end());
      for (const abi::ValueInfo* v : used) OCTAVO_TRY_STATUS(AddConstant(v, scope, wire));
    }
    for (const abi::ValueInfo* v : part.outputs) OCTAVO_TRY_STATUS(AddConstant(v, scope, wire));
    for (const size_t i : part.nodes) {
      OCTAVO_TRY(const std::string name, TextOf(nodes[i], Tail().Node_GetName));
      OCTAVO_TRY(const Wire node, NodeProto(nodes[i], prefix_ + std::to_string(i) + " " + name, scope));
      wire.Message(1, node);
    }
    wire.Bytes(2, "part");
    for (const auto& [field, values] : {std::pair{11, &part.inputs}, std::pair{12, &part.outputs}}) {
      for (const abi::ValueInfo* v : *values) {
        OCTAVO_TRY(const Wire value, ValueProto(v));
        wire.Message(field, value);
      }
    }
    return wire;
  }

 private:
  static Status AddConstant(const abi::ValueInfo* v, std::set<std::string>& scope, Wire& graph) {
    OCTAVO_TRY(const bool constant, IsConstant(v));
    if (!constant) return {};
    OCTAVO_TRY(const std::string name, NameOf(v));
    if (!scope.insert(name).second) return {};
    const OrtValue* value = nullptr;
    OCTAVO_TRY_STATUS(StatusOf(Tail().ValueInfo_GetInitializerValue(v, &value)));
    OCTAVO_TRY(const Wire tensor, TensorProto(value, name));
    graph.Message(5, tensor);
    return {};
  }

  Result<Wire> NodeProto(const abi::Node* node, const std::string& name, const std::set<std::string>& scope) {
    Wire wire;
    OCTAVO_TRY(const auto inputs, InputsOf(node));
    OCTAVO_TRY(const auto outputs, OutputsOf(node));
    for (const auto& [field, values] : {std::pair{1, &inputs}, std::pair{2, &outputs}}) {
      for (const abi::ValueInfo* v : *values) {
        OCTAVO_TRY(const std::string value, NameOf(v));
        wire.Bytes(field, value);
      }
    }
    OCTAVO_TRY(const std::string type, onnxruntime::TypeOf(node));
    OCTAVO_TRY(const std::string domain, TextOf(node, Tail().Node_GetDomain));
    wire.Bytes(3, name);
    wire.Bytes(4, type);
    wire.Bytes(7, domain);
    OCTAVO_TRY(const auto attrs, ListOf(node, Tail().Node_GetNumAttributes, Tail().Node_GetAttributes));
    for (const OrtOpAttr* attr : attrs) OCTAVO_TRY_STATUS(AddAttr(attr, wire));
    size_t count = 0;
    OCTAVO_TRY_STATUS(StatusOf(Tail().Node_GetNumSubgraphs(node, &count)));
    std::vector<const abi::Graph*> graphs(count);
    std::vector<const char*> names(count);
    if (count > 0) OCTAVO_TRY_STATUS(StatusOf(Tail().Node_GetSubgraphs(node, graphs.data(), count, names.data())));
    for (size_t i = 0; i < count; ++i) {
      OCTAVO_TRY(const Part part, WholeOf(graphs[i]));
      OCTAVO_TRY(const Wire body, Writer(name + "/" + names[i] + "/").GraphProto(graphs[i], part, scope));
      Wire attr;
      attr.Bytes(1, names[i]);
      attr.Message(6, body);
      attr.Int(20, kProtoGraph);
      wire.Message(5, attr);
    }
    return wire;
  }

  static Result<Part> WholeOf(const abi::Graph* graph) {
    Part part;
    OCTAVO_TRY(const auto nodes, NodesOf(graph));
    for (size_t i = 0; i < nodes.size(); ++i) part.nodes.push_back(i);
    OCTAVO_TRY(part.inputs, ListOf(graph, Tail().Graph_GetNumInputs, Tail().Graph_GetInputs));
    OCTAVO_TRY(part.outputs, OutputsOf(graph));
    return part;
  }

  std::string prefix_;
};

}  // namespace

Result<std::vector<const abi::Node*>> NodesOf(const abi::Graph* graph) {
  return ListOf(graph, Tail().Graph_GetNumNodes, Tail().Graph_GetNodes);
}
Result<std::string> TypeOf(const abi::Node* node) { return TextOf(node, Tail().Node_GetOperatorType); }
Result<Values> InputsOf(const abi::Node* node) { return ListOf(node, Tail().Node_GetNumInputs, Tail().Node_GetInputs); }
Result<Values> ImplicitInputsOf(const abi::Node* node) {
  return ListOf(node, Tail().Node_GetNumImplicitInputs, Tail().Node_GetImplicitInputs);
}
Result<Values> OutputsOf(const abi::Node* node) {
  return ListOf(node, Tail().Node_GetNumOutputs, Tail().Node_GetOutputs);
}
Result<Values> OutputsOf(const abi::Graph* graph) {
  return ListOf(graph, Tail().Graph_GetNumOutputs, Tail().Graph_GetOutputs);
}
Result<std::string> NameOf(const abi::ValueInfo* value) {
  if (value == nullptr) return std::string();
  return TextOf(value, Tail().GetValueInfoName);
}
Result<bool> IsConstant(const abi::ValueInfo* value) {
  bool is = false;
  if (value != nullptr) OCTAVO_TRY_STATUS(StatusOf(Tail().ValueInfo_IsConstantInitializer(value, &is)));
  return is;
}
size_t NumberOf(std::string_view name) {
  size_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number;
}

Result<Part> PartOf(const abi::Graph* graph, std::vector<size_t> chosen) {
  Part part;
  OCTAVO_TRY(const auto nodes, NodesOf(graph));
  std::vector<bool> inside(nodes.size());
  for (const size_t i : chosen) inside[i] = true;
  std::set<std::string> made, asked, known;  // by the part; by the others; inputs
  OCTAVO_TRY(const Values results, OutputsOf(graph));
  for (const abi::ValueInfo* v : results) {
    OCTAVO_TRY(std::string name, NameOf(v));
    asked.insert(std::move(name));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    OCTAVO_TRY(Values used, InputsOf(nodes[i]));
    OCTAVO_TRY(const Values outer, ImplicitInputsOf(nodes[i]));
    used.insert(used.end(), outer.begin(), outer.end());
    for (const abi::ValueInfo* v : used) {
      OCTAVO_TRY(std::string name, NameOf(v));
      OCTAVO_TRY(const bool constant, IsConstant(v));
      if (name.empty() || constant) continue;
      if (!inside[i]) {
        asked.insert(std::move(name));
      } else if (!made.contains(name) && known.insert(name).second) {
        part.inputs.push_back(v);
      }
    }
    if (!inside[i]) continue;
    OCTAVO_TRY(const Values outputs, OutputsOf(nodes[i]));
    for (const abi::ValueInfo* v : outputs) {
      OCTAVO_TRY(std::string name, NameOf(v));
      made.insert(std::move(name));
    }
  }
  for (const size_t i : chosen) {
    OCTAVO_TRY(const Values outputs, OutputsOf(nodes[i]));
    for (const abi::ValueInfo* v : outputs) {
      OCTAVO_TRY(const std::string name, NameOf(v));
      if (!name.empty() && asked.contains(name)) part.outputs.push_back(v);
    }
  }
  part.nodes = std::move(chosen);
  return part;
}

Result<std::string> ModelOf(const abi::Graph* graph, const Part& part) {
  OCTAVO_TRY(const Wire body, Writer("").GraphProto(graph, part, {}));
  Wire model;
  int64_t version = 0;
  OCTAVO_TRY_STATUS(StatusOf(Tail().Graph_GetOnnxIRVersion(graph, &version)));
  model.Int(1, version);
  size_t count = 0;
  OCTAVO_TRY_STATUS(StatusOf(Tail().Graph_GetNumOperatorSets(graph, &count)));
  std::vector<const char*> domains(count);
  std::vector<int64_t> versions(count);
  OCTAVO_TRY_STATUS(StatusOf(Tail().Graph_GetOperatorSets(graph, domains.data(), versions.data(), count)));
  for (size_t i = 0; i < count; ++i) {
    Wire opset;
    opset.Bytes(1, domains[i]);
    opset.Int(2, versions[i]);
    model.Message(8, opset);
  }
  model.Message(7, body);
  constexpr size_t kMost = 2'000'000'000;
  if (model.bytes().size() > kMost)
    return ir::Fail("the nodes have {} bytes of constants, and a model in memory has at most {}", model.bytes().size(),
                    kMost);
  return model.Take();
}

}  // namespace octavo::integrations::onnxruntime
