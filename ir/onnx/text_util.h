// Names out of files, made fit for a sentence.
#ifndef OCTAVO_IR_ONNX_TEXT_UTIL_H_
#define OCTAVO_IR_ONNX_TEXT_UTIL_H_

#include <format>
#include <string>
#include <string_view>

namespace octavo::ir::onnx {

// Control bytes as \xHH, at most 120 bytes: a hostile name must not break a line of a log.
inline std::string Clean(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 120)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += std::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (name.size() > 120 ? "..." : "");
}
inline std::string Quoted(std::string_view name) { return "'" + Clean(name) + "'"; }

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_TEXT_UTIL_H_
