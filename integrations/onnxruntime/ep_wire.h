// The few wire forms of protocol buffers that an ONNX model takes.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_WIRE_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace octavo::integrations::onnxruntime {

class Wire {
 public:
  void Int(int field, int64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(static_cast<uint64_t>(value));
  }
  void Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    char raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    bytes_.append(raw, sizeof(raw));
  }
  void Bytes(int field, std::string_view value) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(value.size());
    bytes_.append(value);
  }
  void Message(int field, const Wire& message) { Bytes(field, message.bytes_); }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_WIRE_H_
