// Integers in as many bytes as they need, seven bits a byte, least significant first. Internal to quant.
#ifndef OCTAVO_QUANT_VARINT_H_
#define OCTAVO_QUANT_VARINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::quant {

inline void AppendVarint(std::string& out, uint64_t v) {
  for (; v >= 128; v >>= 7) out += static_cast<char>(v | 128);
  out += static_cast<char>(v);
}

// Off the front of `in`; nullopt where it ends early or does not fit in 64 bits.
inline std::optional<uint64_t> TakeVarint(std::string_view& in) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in[0]);
    in.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    v |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return v;
  }
  return std::nullopt;
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_VARINT_H_
