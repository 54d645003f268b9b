#include "octavo/ir/interpret/packed.h"

namespace octavo::ir::interpret {

DType ByteTypeOf(DType packed) { return packed == DType::kS4 || packed == DType::kS2 ? DType::kS8 : DType::kU8; }

Tensor Unpack(const Tensor& t) {
  Tensor out = Tensor::Empty(ByteTypeOf(t.dtype()), t.shape());
  const auto from = t.as<uint8_t>();
  auto to = out.mutable_as<uint8_t>();
  const auto bits = static_cast<size_t>(quant::BitsOf(t.dtype()));
  const size_t in_byte = 8 / bits;
  const int mask = (1 << bits) - 1, flip = out.dtype() == DType::kS8 ? 1 << (bits - 1) : 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const int code = from[i / in_byte] >> (i % in_byte * bits) & mask;
    to[i] = static_cast<uint8_t>((code ^ flip) - flip);
  }
  return out;
}

Tensor Pack(const Tensor& t, DType to) {
  Tensor out = Tensor::Zeros(to, t.shape());
  const auto from = t.as<uint8_t>();
  auto bytes = out.mutable_as<uint8_t>();
  const auto bits = static_cast<size_t>(quant::BitsOf(to));
  const size_t in_byte = 8 / bits;
  const int mask = (1 << bits) - 1;
  for (size_t i = 0; i < from.size(); ++i) {
    bytes[i / in_byte] = static_cast<uint8_t>(bytes[i / in_byte] | ((from[i] & mask) << (i % in_byte * bits)));
  }
  return out;
}

}  // namespace octavo::ir::interpret
