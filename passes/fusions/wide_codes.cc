#include "octavo/passes/fusions/wide_codes.h"

#include <array>
#include <span>

namespace octavo::passes::fusions {

using ir::DType;
using ir::Tensor;

namespace {

// By four bits of the codes: two of 2 bits as two of 4.
std::array<uint8_t, 16> Pairs(bool is_signed) {
  const auto wide = [is_signed](int code) { return (is_signed ? (code ^ 2) - 2 : code) & 15; };
  std::array<uint8_t, 16> pairs{};
  for (int i = 0; i < 16; ++i) pairs[static_cast<size_t>(i)] = static_cast<uint8_t>(wide(i & 3) | wide(i >> 2) << 4);
  return pairs;
}

constexpr std::array<int8_t, 16> kTwiceE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

Tensor WideCodes(const Tensor& codes) {
  const DType wide = WideTypeOf(codes.dtype());
  Tensor out = Tensor::Empty(wide, codes.shape());
  const std::span<const uint8_t> from = codes.as<uint8_t>();
  const auto bits = [from](size_t i) { return static_cast<size_t>(from[i / 2] >> (i % 2 * 4) & 15); };
  const std::array<uint8_t, 16> pairs = Pairs(wide == DType::kS4);
  const std::span<uint8_t> to = out.mutable_as<uint8_t>();
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = wide == DType::kS8 ? static_cast<uint8_t>(kTwiceE2M1[bits(i)]) : pairs[bits(i)];
  return out;
}

}  // namespace

std::vector<DType> CodesOfBlocks() {
  return {DType::kU2, DType::kS2, DType::kU4, DType::kS4, DType::kE2M1, DType::kU8, DType::kS8};
}

DType WideTypeOf(DType codes) {
  switch (codes) {
    case DType::kU2:
      return DType::kU4;
    case DType::kS2:
      return DType::kS4;
    case DType::kE2M1:
      return DType::kS8;
    default:
      return codes;
  }
}

void Widen(Rewriter& b, std::vector<ir::ValueId>& in) {
  const auto constant = [&](size_t slot) { return *b.graph().ConstantOf(in[slot]); };
  const DType codes = constant(1).dtype();
  if (WideTypeOf(codes) == codes) return;
  in[1] = b.Constant(WideCodes(constant(1)));
  if (codes != DType::kE2M1) {
    if (in[3].valid()) in[3] = b.Constant(WideCodes(constant(3)));
    return;
  }
  in[3] = {};  // that of floats is 0 by the standard, and has no meaning
  std::vector<float> half = constant(2).ToFloats();
  for (float& s : half) s *= 0.5f;
  in[2] = b.Constant(Tensor::F32(constant(2).shape(), std::move(half)));
}

}  // namespace octavo::passes::fusions
