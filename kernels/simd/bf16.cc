#include "octavo/kernels/simd/bf16.h"

#include <bit>

#include "octavo/quant/numeric/code8.h"

namespace octavo::kernels {
namespace {

Bf16Table Make(quant::DType dtype) {
  Bf16Table t{};
  for (int i = 0; i < 128; ++i) {
    const auto bits = std::bit_cast<uint32_t>(quant::Fp8ToF32(static_cast<uint8_t>(i), dtype));
    t.low[i] = static_cast<uint8_t>(bits >> 16), t.high[i] = static_cast<uint8_t>(bits >> 24);
  }
  return t;
}

}  // namespace

const Bf16Table& Bf16TableOf(quant::DType dtype) {
  static const Bf16Table e4m3 = Make(quant::DType::kE4M3FN), e5m2 = Make(quant::DType::kE5M2);
  return dtype == quant::DType::kE4M3FN ? e4m3 : e5m2;
}

}  // namespace octavo::kernels
