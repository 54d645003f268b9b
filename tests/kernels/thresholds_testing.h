// Sizes around thresholds, and the comparison of every Arch with the scalar form.
#ifndef OCTAVO_TESTS_KERNELS_THRESHOLDS_TESTING_H_
#define OCTAVO_TESTS_KERNELS_THRESHOLDS_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "testing.h"

namespace octavo::kernels {

// Each of the table, one below and one above, from 1 on.
template <size_t kCount>
std::vector<int64_t> Around(const int64_t (&table)[kCount]) {
  std::set<int64_t> sizes;
  for (const int64_t at : table) sizes.insert({at - 1, at, at + 1});
  sizes.erase(0);
  return {sizes.begin(), sizes.end()};
}

// run(arch) gives the same bytes for all that run here.
template <typename Run>
void ExpectScalarBits(const Run& run) {
  static const std::vector<Arch> archs = RunnableArchs();
  const auto want = run(Arch::kScalar);
  for (const Arch arch : archs) {
    if (arch == Arch::kScalar) continue;
    const auto got = run(arch);
    ASSERT_EQ(got.size(), want.size());
    const bool same = std::memcmp(got.data(), want.data(), want.size() * sizeof(want[0])) == 0;
    EXPECT_TRUE(same) << Name(arch) << " differs from the scalar form";
    EXPECT_EQ(trap::TakeProblem(), "") << Name(arch);
    EXPECT_TRUE(trap::TilesReleased()) << Name(arch) << " leaves its tiles configured";
  }
}

}  // namespace octavo::kernels

#endif  // OCTAVO_TESTS_KERNELS_THRESHOLDS_TESTING_H_
