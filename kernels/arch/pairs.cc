#include "octavo/kernels/arch/pairs.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace octavo::kernels {
namespace {

constexpr size_t kLanes = 16;
struct alignas(64) Lanes {
  std::array<float, kLanes> sum;
  std::array<uint32_t, kLanes> a, b;  // pairs of bf16
};

constexpr uint32_t Pair(float upper, float lower) {
  return std::bit_cast<uint32_t>(upper) | std::bit_cast<uint32_t>(lower) >> 16;
}
float Upper(uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); }
float Lower(uint32_t pair) { return std::bit_cast<float>(pair << 16); }

// By registers that need no AVX-512 to be named: this file is compiled for the baseline.
void Dot(Lanes* x) {
  asm volatile(
      "vmovups (%0), %%zmm0\n\tvmovups (%1), %%zmm1\n\tvmovups (%2), %%zmm2\n\t"
      "vdpbf16ps %%zmm2, %%zmm1, %%zmm0\n\tvmovups %%zmm0, (%0)\n\tvzeroupper"
      :
      : "r"(x->sum.data()), "r"(x->a.data()), "r"(x->b.data())
      : "memory", "xmm0", "xmm1", "xmm2");
}

bool IsInOrder(const Lanes& given) {
  Lanes x = given;
  std::array<float, kLanes> want;
  for (size_t i = 0; i < kLanes; ++i) {
    want[i] = std::fma(Lower(x.a[i]), Lower(x.b[i]), std::fma(Upper(x.a[i]), Upper(x.b[i]), x.sum[i]));
  }
  Dot(&x);
  return std::memcmp(want.data(), x.sum.data(), sizeof(want)) == 0;
}

// Sums where each other order, one rounding for two products, a rounding of their sum, truncation and rounding to odd differ.
Lanes Corners() {
  constexpr float kBig = 0x1p24f;  // from here on floats are even
  struct Corner {
    float sum, upper, lower;
  };
  constexpr Corner kCorners[] = {
      {1, kBig, 1},           // 2^24, not 2^24 + 2: the upper product comes first, and is rounded
      {kBig, 1, 1},           // 2^24, not 2^24 + 2: the products are not added to each other
      {kBig, 3, 0},           // 2^24 + 4: half to even, upwards
      {kBig, 1, 0},           // 2^24: half to even, downwards
      {kBig, 0, 3},           // and the same of the lower one
      {-kBig, 1, -3},         // -2^24 + 1 exists, then -2^24 - 2
      {1, 0x1p26f, -0x1p26f}  // 0, not 1
  };
  Lanes x{};
  for (size_t i = 0; i < kLanes; ++i) {
    const Corner& c = kCorners[i % std::size(kCorners)];
    x.sum[i] = c.sum, x.a[i] = Pair(c.upper, c.lower), x.b[i] = Pair(1, 1);
  }
  return x;
}

// Bits of a linear congruential generator (Knuth's MMIX).
Lanes Mixed(uint64_t* state) {
  const auto next = [state] {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(*state >> 32);
  };
  // bf16 from 2^-7 to 2^8 of either sign, floats alike.
  const auto upper = [&next] { return (next() & 0x87FF0000u) + 0x3C000000u; };
  Lanes x{};
  for (size_t i = 0; i < kLanes; ++i) {
    x.sum[i] = std::bit_cast<float>(upper() | next() >> 16);
    x.a[i] = upper() | upper() >> 16, x.b[i] = upper() | upper() >> 16;
  }
  return x;
}

}  // namespace

bool PairsAreAddedInOrder() {
  bool in_order = IsInOrder(Corners());
  uint64_t state = 1;
  for (int i = 0; i < 16; ++i) in_order = IsInOrder(Mixed(&state)) && in_order;
  return in_order;
}

}  // namespace octavo::kernels
