// octavo's ops as model-local functions: any runtime runs the body, ours recognises the name.
#include <onnx_messages.pb.h>

#include <algorithm>

#include "octavo/ir/functions.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/export.h"
#include "octavo/ir/onnx/tensor_proto.h"

namespace octavo::ir::onnx {

Result<std::string> Exporter::FunctionOf(const Graph& g, const Node& n) {
  pb::FunctionProto function;
  OCTAVO_TRY_STATUS(WriteFunction(g, n, &function));
  const std::string op(InfoOf(n.op).name);
  std::string& name = functions_[op + '\0' + function.SerializeAsString()];
  if (!name.empty()) return name;
  name = op + "__" + std::to_string(++function_count_[op]);
  function.set_name(name);
  *model_->add_functions() = std::move(function);
  return name;
}

Status Exporter::WriteFunction(const Graph& g, const Node& n, pb::FunctionProto* function) {
  auto body = BodyOf(g, n);
  if (!body) return Fail("{} cannot be written as a function: {}", Quoted(n.name), body.error().message);
  function->set_domain("octavo");
  auto* opset = function->add_opset_import();
  opset->set_domain("");
  opset->set_version(opset_);
  for (const auto& [name, attr] : n.attrs.entries()) function->add_attribute(name);
  // The names of the body's own values: i0.. and o0.. by slot, the rest in order.
  Names names;
  names.of.resize(body->value_capacity());
  for (size_t i = 0; i < n.inputs.size(); ++i) function->add_input(names.Take("i" + std::to_string(i)));
  for (size_t i = 0; i < n.outputs.size(); ++i) function->add_output(names.Take("o" + std::to_string(i)));
  for (ValueId v : body->inputs()) names.of[v.index] = body->value(v).name;
  std::vector<std::pair<std::string, ValueId>> aliases;
  for (const GraphOutput& o : body->outputs()) {
    std::string& name = names.of[o.value.index];
    if (name.empty()) {
      name = o.name;
    } else {
      aliases.emplace_back(o.name, o.value);
    }
  }
  UniqueNames node_names;
  int temporary = 0;
  for (NodeId id = body->first(); id.valid(); id = body->node(id).next) {
    const Node& inner = body->node(id);
    for (ValueId v : inner.outputs) {
      if (v.valid() && names.of[v.index].empty()) names.of[v.index] = "t" + std::to_string(temporary++);
    }
    pb::NodeProto* proto = function->add_node();
    if (inner.op == Op::kConstant) {  // a function has no initializers
      proto->set_op_type("Constant");
      proto->add_output(names.of[inner.output().index]);
      auto* value = proto->add_attribute();
      value->set_name("value");
      value->set_type(pb::AttributeProto::TENSOR);
      WriteTensor(*body->ConstantOf(inner.output()), value->mutable_t());
      continue;
    }
    OCTAVO_TRY_STATUS(WriteNode(*body, inner, names, node_names, proto));
    proto->clear_metadata_props();
  }
  for (const auto& [name, value] : aliases) {
    auto* proto = function->add_node();
    proto->set_op_type("Identity");
    proto->add_input(names.of[value.index]);
    proto->add_output(name);
  }
  return {};
}

}  // namespace octavo::ir::onnx
