#include "octavo/ir/interpret/nibbles.h"

namespace octavo::ir::interpret {

Tensor UnpackNibbles(const Tensor& t) {
  const bool is_signed = t.dtype() == DType::kS4;
  Tensor out = Tensor::Empty(is_signed ? DType::kS8 : DType::kU8, t.shape());
  const auto from = t.as<uint8_t>();
  auto to = out.mutable_as<uint8_t>();
  const int flip = is_signed ? 8 : 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const int nibble = (i % 2 == 0) ? from[i / 2] & 15 : from[i / 2] >> 4;
    to[i] = static_cast<uint8_t>((nibble ^ flip) - flip);
  }
  return out;
}

Tensor PackNibbles(const Tensor& t, DType to) {
  Tensor out = Tensor::Zeros(to, t.shape());
  const auto from = t.as<uint8_t>();
  auto bytes = out.mutable_as<uint8_t>();
  for (size_t i = 0; i < from.size(); ++i) {
    bytes[i / 2] = static_cast<uint8_t>(bytes[i / 2] | ((from[i] & 15) << (i % 2 == 0 ? 0 : 4)));
  }
  return out;
}

}  // namespace octavo::ir::interpret
