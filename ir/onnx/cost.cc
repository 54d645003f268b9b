#include "octavo/ir/onnx/cost.h"

#include <onnx_messages.pb.h>

#include "octavo/ir/onnx/external.h"
#include "octavo/ir/onnx/messages.h"

namespace octavo::ir::onnx {

namespace pb = ::octavo_onnx;

namespace {

using messages::Field;
using messages::Holds;

// Walks the wire format with the schema at hand; nothing is allocated.
class Weigher {
 public:
  int64_t bytes() const { return bytes_; }

  void Weigh(std::string_view in, const messages::Message& type, int depth = 0) {
    constexpr int kMostDepth = 100;  // as the parser
    bytes_ += type.bytes + kPointer;
    if (depth > kMostDepth) return;
    uint64_t tag = 0;
    while (Varint(in, tag)) {
      if (!Take(in, type.Find(tag >> 3), tag & 7, depth)) return;
    }
  }

 private:
  static constexpr int64_t kUnknown = 64;  // of a field that the schema does not have: it is kept
  static constexpr int64_t kElement = 16;  // of a list, which grows by doubling
  static constexpr int64_t kPointer = 40;  // to an element of a list, and what the allocator adds
  static constexpr int64_t kString = 32;

  static bool Varint(std::string_view& in, uint64_t& v) {
    v = 0;
    for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(in[0]);
      in.remove_prefix(1);
      v |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  }

  bool Take(std::string_view& in, const Field* field, uint64_t wire, int depth) {
    const int64_t element = field == nullptr ? kUnknown : field->repeated ? kElement : 0;
    uint64_t length = 0;
    switch (wire) {
      case 0:
        bytes_ += element;
        return Varint(in, length);
      case 1:
      case 5:
        bytes_ += element;
        length = wire == 1 ? 8 : 4;
        break;
      case 2:
        if (!Varint(in, length) || length > in.size()) return false;
        Payload(in.substr(0, length), field, depth);
        break;
      case 3:  // groups are unknown to the schema; what is in one is weighed as if it stood here
        bytes_ += 2 * kUnknown;
        return true;
      default:
        return wire == 4;
    }
    if (length > in.size()) return false;
    in.remove_prefix(length);
    return true;
  }

  void Payload(std::string_view payload, const Field* field, int depth) {
    const auto size = static_cast<int64_t>(payload.size());
    if (field == nullptr) {
      bytes_ += kUnknown + kString + size;
    } else if (field->holds == Holds::kMessage) {
      Weigh(payload, *field->message, depth + 1);
    } else if (field->holds == Holds::kText) {
      bytes_ += kPointer + kString + size;
    } else if (field->holds == Holds::kReals) {
      bytes_ += size;
    } else {
      bytes_ += size * kElement;  // a number of 64 bits may take one byte
    }
  }

  int64_t bytes_ = 0;
};

int64_t Weighed(std::string_view bytes, const messages::Message& type) {
  Weigher weigher;
  weigher.Weigh(bytes, type);
  return weigher.bytes();
}

// Sizes in the unit of CostOf.
constexpr int64_t kNamesPerNode = 8;             // values that a node reads or makes, or that a graph declares
constexpr int64_t kAttributeBytesPerNode = 512;  // copied with each call
constexpr int64_t kTensorBytesPerNode =
    16384;  // shared by all calls; whoever walks the graph looks at them all the same

int64_t CostOf(const pb::GraphProto& graph);

int64_t CostOf(const pb::TensorProto& tensor) {
  const auto size = static_cast<int64_t>(tensor.raw_data().size()) + int64_t{8} * tensor.int64_data_size() +
                    int64_t{8} * tensor.double_data_size() + int64_t{8} * tensor.uint64_data_size() +
                    int64_t{4} * tensor.float_data_size() + int64_t{4} * tensor.int32_data_size() +
                    int64_t{64} * tensor.string_data_size();
  return 1 + size / kTensorBytesPerNode;
}

int64_t CostOf(const pb::NodeProto& node) {
  int64_t copied = 0, cost = 1 + (node.input_size() + node.output_size()) / kNamesPerNode;
  for (const auto& a : node.attribute()) {
    copied += 64 + static_cast<int64_t>(a.name().size() + a.s().size()) + int64_t{8} * a.ints_size() +
              int64_t{4} * a.floats_size();
    for (const std::string& s : a.strings()) copied += 32 + static_cast<int64_t>(s.size());
    if (a.has_t()) cost += CostOf(a.t()) - 1;
    if (a.has_g()) cost += CostOf(a.g());
    // Kept as they came.
    for (const auto& t : a.tensors()) copied += static_cast<int64_t>(t.ByteSizeLong());
    if (a.has_sparse_tensor()) copied += static_cast<int64_t>(a.sparse_tensor().ByteSizeLong());
  }
  return cost + copied / kAttributeBytesPerNode;
}

int64_t CostOf(const pb::GraphProto& graph) {
  int64_t cost = 1 + (graph.input_size() + graph.output_size() + graph.value_info_size()) / kNamesPerNode;
  for (const auto& tensor : graph.initializer()) cost += CostOf(tensor);
  for (const auto& node : graph.node()) cost += CostOf(node);
  return cost;
}

int64_t SizeOf(const pb::TensorProto& tensor, ExternalFiles& files) {
  if (tensor.data_location() != pb::TensorProto::EXTERNAL) return 0;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") return files.FirstSize(entry.value());
  }
  return 0;
}

int64_t SizeOf(const pb::GraphProto& graph, ExternalFiles& files);

int64_t SizeOf(const pb::NodeProto& node, ExternalFiles& files) {
  int64_t bytes = 0;
  for (const auto& a : node.attribute()) {
    if (a.has_t()) bytes += SizeOf(a.t(), files);
    if (a.has_g()) bytes += SizeOf(a.g(), files);
  }
  return bytes;
}

int64_t SizeOf(const pb::GraphProto& graph, ExternalFiles& files) {
  int64_t bytes = 0;
  for (const auto& tensor : graph.initializer()) bytes += SizeOf(tensor, files);
  for (const auto& node : graph.node()) bytes += SizeOf(node, files);
  return bytes;
}

}  // namespace

int64_t ParsedBytes(std::string_view model) { return Weighed(model, messages::kModel); }
int64_t ParsedBytesOfTensor(std::string_view tensor) { return Weighed(tensor, messages::kTensor); }

int64_t CostOf(const pb::FunctionProto& function) {
  int64_t cost = 1 + (function.input_size() + function.output_size() + function.attribute_proto_size()) / kNamesPerNode;
  for (const auto& node : function.node()) cost += CostOf(node);
  return cost;
}

int64_t ExternalBytes(const pb::ModelProto& model, ExternalFiles& files) {
  int64_t bytes = SizeOf(model.graph(), files);
  for (const auto& function : model.functions()) {
    for (const auto& node : function.node()) bytes += SizeOf(node, files);
  }
  return bytes;
}

}  // namespace octavo::ir::onnx
