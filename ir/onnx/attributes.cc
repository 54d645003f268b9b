#include <onnx_messages.pb.h>

#include "octavo/ir/names.h"
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/onnx/tensor_proto.h"

namespace octavo::ir::onnx {

namespace {

// Files of IR version 1 leave the type out; the field that is set tells it.
pb::AttributeProto::AttributeType TypeOf(const pb::AttributeProto& a) {
  if (a.type() != pb::AttributeProto::UNDEFINED) return a.type();
  if (a.has_f()) return pb::AttributeProto::FLOAT;
  if (a.has_i()) return pb::AttributeProto::INT;
  if (a.has_s()) return pb::AttributeProto::STRING;
  if (a.has_t()) return pb::AttributeProto::TENSOR;
  if (a.has_g()) return pb::AttributeProto::GRAPH;
  if (a.floats_size() != 0) return pb::AttributeProto::FLOATS;
  if (a.ints_size() != 0) return pb::AttributeProto::INTS;
  if (a.strings_size() != 0) return pb::AttributeProto::STRINGS;
  return pb::AttributeProto::UNDEFINED;
}

}  // namespace

const pb::AttributeProto* Resolve(const pb::AttributeProto& proto, const Bindings* bindings) {
  if (proto.ref_attr_name().empty()) return &proto;
  if (bindings == nullptr) return nullptr;
  const auto it = bindings->find(proto.ref_attr_name());
  return it == bindings->end() ? nullptr : it->second;
}

Result<Attr> ReadAttribute(const pb::AttributeProto& a, FileContext& file) {
  switch (TypeOf(a)) {
    case pb::AttributeProto::FLOAT:
      return Attr(a.f());
    case pb::AttributeProto::INT:
      return Attr(int64_t{a.i()});
    case pb::AttributeProto::STRING:
      return Attr(a.s());
    case pb::AttributeProto::FLOATS:
      return Attr(std::vector<float>(a.floats().begin(), a.floats().end()));
    case pb::AttributeProto::INTS:
      return Attr(std::vector<int64_t>(a.ints().begin(), a.ints().end()));
    case pb::AttributeProto::STRINGS:
      return Attr(std::vector<std::string>(a.strings().begin(), a.strings().end()));
    case pb::AttributeProto::TENSOR: {
      auto tensor = file.Read(a.t());
      if (!tensor) return Fail("attribute {}: {}", Quoted(a.name()), tensor.error().message);
      return Attr(std::move(*tensor));
    }
    case pb::AttributeProto::GRAPHS:
      return Fail("attribute {} is a list of graphs, which octavo does not read", Quoted(a.name()));
    case pb::AttributeProto::UNDEFINED:
      return Fail("attribute {} has no type and no value", Quoted(a.name()));
    default:
      return Attr(RawAttr{a.SerializeAsString()});
  }
}

Result<Tensor> ReadConstant(const pb::AttributeProto& a, std::string_view name, FileContext& file) {
  OCTAVO_TRY(Attr attr, ReadAttribute(a, file));
  if (name == "value" && std::holds_alternative<Tensor>(attr)) return std::get<Tensor>(std::move(attr));
  if (name == "value_float" && std::holds_alternative<float>(attr)) return Tensor::ScalarF32(std::get<float>(attr));
  if (name == "value_int" && std::holds_alternative<int64_t>(attr)) return Tensor::ScalarS64(std::get<int64_t>(attr));
  if (name == "value_string" && std::holds_alternative<std::string>(attr)) {
    return Tensor::Strings({}, {std::get<std::string>(attr)});
  }
  if (auto* v = std::get_if<std::vector<float>>(&attr); v != nullptr && name == "value_floats") {
    return Tensor::F32({static_cast<int64_t>(v->size())}, *v);
  }
  if (auto* v = std::get_if<std::vector<int64_t>>(&attr); v != nullptr && name == "value_ints") {
    return Tensor::S64({static_cast<int64_t>(v->size())}, *v);  // no move: the size may be read after it
  }
  if (auto* v = std::get_if<std::vector<std::string>>(&attr); v != nullptr && name == "value_strings") {
    return Tensor::Strings({static_cast<int64_t>(v->size())}, std::move(*v));
  }
  if (name == "sparse_value") return Fail("it holds a sparse tensor, which octavo does not read; store it dense");
  return Fail("its attribute {} is not one of Constant's forms", Quoted(name));
}

}  // namespace octavo::ir::onnx
