// A sum of finite float32 values without rounding, so that it does not depend on the order and two sums can be added: a
// fixed-point number wide enough for 2^64 values of any size.
#ifndef OCTAVO_QUANT_EXACT_SUM_H_
#define OCTAVO_QUANT_EXACT_SUM_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace octavo::quant {

class ExactSum {
 public:
  // Lowest bit 2^-149 (the smallest denormal), 277 bits up to FLT_MAX, 64 for the count, 1 for the sign: 342 bits.
  static constexpr int kLimbs = 6;

  void Add(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const int exponent = static_cast<int>((bits >> 23) & 255);
    uint64_t mantissa = bits & 0x7fffffu;
    if (exponent != 0) mantissa |= 0x800000u;
    const int shift = exponent == 0 ? 0 : exponent - 1;
    const size_t limb = static_cast<size_t>(shift / 64);
    const int in_limb = shift % 64;
    std::array<uint64_t, kLimbs> term{};
    term[limb] = mantissa << in_limb;
    if (in_limb > 40) term[limb + 1] = mantissa >> (64 - in_limb);
    if ((bits >> 31) != 0) Negate(term);
    AddLimbs(term);
  }
  void Add(const ExactSum& other) { AddLimbs(other.limbs_); }

  // Nearest double, but for the rounding of the conversion of each limb.
  double Value() const {
    std::array<uint64_t, kLimbs> magnitude = limbs_;
    const bool negative = (magnitude[kLimbs - 1] >> 63) != 0;
    if (negative) Negate(magnitude);
    double sum = 0;
    for (int i = kLimbs; i-- > 0;) {
      sum += std::ldexp(static_cast<double>(magnitude[static_cast<size_t>(i)]), 64 * i - 149);
    }
    return negative ? -sum : sum;
  }

  const std::array<uint64_t, kLimbs>& limbs() const { return limbs_; }
  void set_limbs(const std::array<uint64_t, kLimbs>& limbs) { limbs_ = limbs; }
  bool operator==(const ExactSum&) const = default;

 private:
  static void Negate(std::array<uint64_t, kLimbs>& v) {
    uint64_t carry = 1;
    for (auto& limb : v) {
      limb = ~limb + carry;
      carry = carry != 0 && limb == 0 ? 1 : 0;
    }
  }
  void AddLimbs(const std::array<uint64_t, kLimbs>& term) {
    unsigned char carry = 0;
    for (size_t i = 0; i < kLimbs; ++i) {
      uint64_t sum;
      const bool first = __builtin_add_overflow(limbs_[i], term[i], &sum);
      const bool second = __builtin_add_overflow(sum, static_cast<uint64_t>(carry), &limbs_[i]);
      carry = first || second ? 1 : 0;
    }
  }

  std::array<uint64_t, kLimbs> limbs_{};  // two's complement, least significant first
};

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_EXACT_SUM_H_
