// SplitMix64: the same numbers on every machine for a seed.
#ifndef OCTAVO_FUZZ_RANDOM_H_
#define OCTAVO_FUZZ_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octavo::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, n); 0 where n is not positive.
  int64_t Below(int64_t n) { return n <= 0 ? 0 : static_cast<int64_t>(Bits() % static_cast<uint64_t>(n)); }
  int Int(int n) { return static_cast<int>(Below(n)); }
  bool OneIn(int n) { return Below(n) == 0; }
  template <typename List>
  decltype(auto) Of(const List& list) {
    return list[static_cast<size_t>(Below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  uint64_t state_;
};

// The seed of one case of a campaign.
inline uint64_t SeedOf(uint64_t seed, uint64_t index) { return Random(seed * 0x9e3779b97f4a7c15u + index).Bits(); }

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_RANDOM_H_
