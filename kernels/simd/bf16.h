// fp8 values as bf16: every one is a normal bf16 (the least E5M2 is 2^-16) or 0, so units that take subnormal numbers for 0 lose none.
#ifndef OCTAVO_KERNELS_SIMD_BF16_H_
#define OCTAVO_KERNELS_SIMD_BF16_H_

#include <bit>
#include <cstdint>

#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

// The bytes of the bf16 of codes 0 to 127; the sign is left to the code.
struct alignas(64) Bf16Table {
  uint8_t low[128];
  uint8_t high[128];
};

// dtype: kE4M3FN or kE5M2.
inline const Bf16Table& Bf16TableOf(quant::DType dtype) {
  static const auto make = [](quant::DType type) {
    Bf16Table t{};
    for (int i = 0; i < 128; ++i) {
      const auto bits = std::bit_cast<uint32_t>(quant::Fp8ToF32(static_cast<uint8_t>(i), type));
      t.low[i] = static_cast<uint8_t>(bits >> 16), t.high[i] = static_cast<uint8_t>(bits >> 24);
    }
    return t;
  };
  static const Bf16Table e4m3 = make(quant::DType::kE4M3FN), e5m2 = make(quant::DType::kE5M2);
  return dtype == quant::DType::kE4M3FN ? e4m3 : e5m2;
}

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_BF16_H_
