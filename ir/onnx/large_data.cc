#include "octavo/ir/onnx/large_data.h"

#include <cstdint>

namespace octavo::ir::onnx {

namespace {

constexpr size_t kLarge = 65536;

// Fields of onnx.proto.
constexpr uint64_t kGraph = 7, kInitializer = 5;  // of ModelProto, GraphProto
constexpr uint64_t kDims = 1, kDataType = 2, kRawData = 9, kName = 8, kDocString = 12, kExternalData = 13,
                   kDataLocation = 14;  // of TensorProto
constexpr uint64_t kExternal = 1;       // of data_location

enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One after the other; ok() is false where one is none that protobuf writes.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}
  uint64_t number = 0, wire = 0, value = 0;
  std::string_view whole, content;  // with its tag; of kBytes

  bool Next() {
    const std::string_view before = rest_;
    uint64_t tag = 0;
    if (!ok_ || rest_.empty()) return false;
    ok_ = Varint(tag);
    if (!ok_) return false;
    number = tag >> 3, wire = tag & 7, content = {};
    size_t skipped = wire == kFixed64 ? 8 : wire == kFixed32 ? 4 : 0;
    if (wire == kVarint || wire == kBytes) ok_ = Varint(value);
    if (wire == kBytes) skipped = value;
    ok_ = ok_ && number != 0 && (wire <= kBytes || wire == kFixed32) && skipped <= rest_.size();
    if (!ok_) return false;
    content = rest_.substr(0, skipped);
    rest_.remove_prefix(skipped);
    whole = before.substr(0, before.size() - rest_.size());
    return true;
  }
  bool ok() const { return ok_; }

 private:
  bool Varint(uint64_t& out) {
    out = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      out |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return true;
    }
    return false;
  }

  std::string_view rest_;
  bool ok_ = true;
};

void PutVarint(std::string& out, uint64_t v) {
  for (; v >= 128; v >>= 7) out += static_cast<char>(v | 128);
  out += static_cast<char>(v);
}
void PutBytes(std::string& out, uint64_t number, std::string_view content) {
  PutVarint(out, number << 3 | kBytes);
  PutVarint(out, content.size());
  out += content;
}
void PutEntry(std::string& out, std::string_view key, std::string_view value) {
  std::string entry;
  PutBytes(entry, 1, key);
  PutBytes(entry, 2, value);
  PutBytes(out, kExternalData, entry);
}

// Of a tensor that has large raw data and nothing beside it but what every tensor has.
std::optional<std::string> Referring(std::string_view tensor, std::string_view file, const std::string& location) {
  std::string out;
  std::string_view raw;
  Fields f(tensor);
  while (f.Next()) {
    if (f.number == kRawData && f.wire == kBytes && raw.empty()) {
      raw = f.content;
      continue;
    }
    const bool plain = f.number == kDims || f.number == kName || f.number == kDocString || f.number == kDataType;
    if (!plain) return {};
    out += f.whole;
  }
  if (!f.ok() || raw.size() < kLarge) return {};
  PutEntry(out, "location", location);
  PutEntry(out, "offset", std::to_string(raw.data() - file.data()));
  PutEntry(out, "length", std::to_string(raw.size()));
  PutVarint(out, kDataLocation << 3 | kVarint);
  PutVarint(out, kExternal);
  return out;
}

}  // namespace

std::optional<std::string> WithoutLargeData(std::string_view bytes, const std::string& location) {
  std::string model, graph;
  int graphs = 0, lifted = 0;
  Fields f(bytes);
  while (f.Next()) {
    if (f.number != kGraph) {
      model += f.whole;
      continue;
    }
    if (f.wire != kBytes || ++graphs > 1) return {};
    Fields g(f.content);
    while (g.Next()) {
      std::optional<std::string> referring;
      if (g.number == kInitializer && g.wire == kBytes) referring = Referring(g.content, bytes, location);
      if (referring) PutBytes(graph, kInitializer, *referring), ++lifted;
      if (!referring) graph += g.whole;
    }
    if (!g.ok()) return {};
  }
  if (!f.ok() || lifted == 0) return {};
  PutBytes(model, kGraph, graph);
  return model;
}

}  // namespace octavo::ir::onnx
