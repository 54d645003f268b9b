#include "octavo/ir/onnx/symbols.h"

#include <onnx_messages.pb.h>

#include <algorithm>
#include <format>

#include "octavo/ir/onnx/tensor_proto.h"

namespace octavo::ir::onnx {

namespace pb = ::octavo_onnx;

namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsSymbolChar(char c) { return IsLetter(c) || (c >= '0' && c <= '9') || c == '.'; }
// "_", "?", "-1": what exporters write for every dynamic dim is no name that makes two of them equal.
bool IsName(std::string_view dim_param) {
  return std::ranges::any_of(dim_param, [](char c) { return (IsLetter(c) && c != '_') || (c & 0x80) != 0; });
}
bool IsPlain(std::string_view name) {
  return IsName(name) && IsLetter(name[0]) && std::ranges::all_of(name, IsSymbolChar);
}

}  // namespace

void Symbols::Reserve(const pb::GraphProto& graph) {
  for (const auto& input : graph.input()) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (!IsPlain(dim.dim_param())) continue;
      input_symbols_.insert(dim.dim_param());
      symbol_of_[dim.dim_param()] = dim.dim_param();
      taken_.Add(dim.dim_param());
    }
  }
}

std::string Symbols::Symbol(const std::string& raw) {
  if (const auto it = symbol_of_.find(raw); it != symbol_of_.end()) return it->second;
  return symbol_of_[raw] = Fresh(raw);
}

std::string Symbols::Fresh(std::string base) {
  std::ranges::replace_if(base, [](char c) { return !IsSymbolChar(c); }, '_');
  if (base.empty() || !IsLetter(base[0])) base.insert(base.begin(), '_');
  return taken_.Take(std::move(base));
}

Dim Symbols::Named(const std::string& dim_param) {
  if (IsPlain(dim_param)) return Dim::Symbol(Symbol(dim_param));
  // "past_sequence_length + sequence_length": exporters write expressions. One is taken at its word only if every
  // symbol in it is bound by some input dim, so that its value can be computed and checked at run time.
  if (const auto dim = Dim::Parse(dim_param); dim && dim->known() && !dim->is_number()) {
    bool all_bound = true;
    dim->Evaluate([&](std::string_view name) -> std::optional<int64_t> {
      all_bound = all_bound && input_symbols_.contains(name);
      return 1;
    });
    if (all_bound) return *dim;
  }
  return Dim::Symbol(Symbol(dim_param));
}

std::optional<Type> Symbols::Read(const pb::TypeProto& proto, std::string_view value, Unnamed unnamed) {
  if (proto.has_optional_type() && proto.optional_type().elem_type().has_tensor_type())
    return Read(proto.optional_type().elem_type(), value, unnamed);
  if (!proto.has_tensor_type() || !IsKnownDType(proto.tensor_type().elem_type())) return std::nullopt;
  Type type;
  type.dtype = static_cast<DType>(proto.tensor_type().elem_type());
  if (!proto.tensor_type().has_shape()) return type;
  if (proto.tensor_type().shape().dim_size() > kMaxRank) return std::nullopt;
  type.shape.emplace();
  for (int i = 0; i < proto.tensor_type().shape().dim_size(); ++i) {
    const auto& dim = proto.tensor_type().shape().dim(i);
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      type.shape->emplace_back(dim.dim_value());
    } else if (IsName(dim.dim_param())) {
      type.shape->push_back(Named(dim.dim_param()));
    } else if (unnamed == Unnamed::kFreshSymbol) {
      type.shape->push_back(Dim::Symbol(Fresh(std::string(Stem(value)) + "_d" + std::to_string(i))));
    } else {
      type.shape->push_back(Dim::Unknown());
    }
  }
  return type;
}

std::string DescribeType(const pb::TypeProto& proto) {
  if (proto.has_sequence_type()) return "a sequence";
  if (proto.has_map_type()) return "a map";
  if (proto.has_optional_type()) return "an optional";
  if (proto.has_sparse_tensor_type()) return "a sparse tensor";
  if (!proto.has_tensor_type()) return "without a type";
  const int32_t elem = proto.tensor_type().elem_type();
  if (elem == 0) return "without an element type";
  if (const int rank = proto.tensor_type().shape().dim_size(); rank > kMaxRank)
    return std::format("a tensor of {} dimensions, more than {}", rank, kMaxRank);
  return "a tensor of element type " +
         (pb::TensorProto::DataType_IsValid(elem)
              ? pb::TensorProto::DataType_Name(static_cast<pb::TensorProto::DataType>(elem))
              : std::to_string(elem));
}

void WriteType(const Type& type, pb::TypeProto* proto) {
  auto* tensor = proto->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int32_t>(type.dtype));
  if (!type.shape) return;
  auto* shape = tensor->mutable_shape();
  for (const Dim& d : *type.shape) {
    auto* dim = shape->add_dim();
    if (d.ToString() == "?") continue;
    if (d.is_number()) {
      dim->set_dim_value(d.number());
    } else {
      dim->set_dim_param(d.symbol().empty() ? d.ToString() : d.symbol());
    }
  }
}

}  // namespace octavo::ir::onnx
