// Strided copies: whatever the order of the dims, each element comes from its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "octavo/ir/interpret/strided.h"

namespace octavo::ir::interpret {
namespace {

TEST(CopyStrided, EveryOrderOfDims) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 gen(seed);
  const auto some = [&](int64_t least, int64_t most) { return std::uniform_int_distribution(least, most)(gen); };
  for (int i = 0; i < 400; ++i) {
    const auto rank = static_cast<size_t>(some(1, 4));
    const auto element = static_cast<size_t>(1) << some(0, 3);
    std::vector<size_t> order(rank);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::shuffle(order, gen);
    Shape shape, from(rank), to(rank);
    for (size_t d = 0; d < rank; ++d) shape.push_back(i % 7 == 0 ? some(0, 5) : some(1, rank < 3 ? 40 : 19));
    int64_t step = some(1, 8) == 1 ? 2 : 1;  // sometimes nothing lies together
    for (const size_t d : order) from[d] = step, step *= shape[d];
    const int64_t sources = step;
    step = 1;
    for (size_t d = rank; d-- > 0;) to[d] = step, step *= shape[d];
    std::vector<std::byte> x(static_cast<size_t>(std::max<int64_t>(sources, 1)) * element),
        y(static_cast<size_t>(step) * element), want = y;
    for (std::byte& b : x) b = static_cast<std::byte>(some(0, 255));
    for (int64_t e = 0; e < step; ++e) {
      int64_t at = 0;
      for (size_t d = 0; d < rank; ++d) at += e / to[d] % shape[d] * from[d];
      std::memcpy(want.data() + static_cast<size_t>(e) * element, x.data() + static_cast<size_t>(at) * element,
                  element);
    }
    CopyStrided(x.data(), from, y.data(), to, shape, element);
    EXPECT_EQ(y, want) << "elements of " << element << " bytes, rank " << rank << ", " << i;
  }
}

}  // namespace
}  // namespace octavo::ir::interpret
