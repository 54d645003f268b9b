#include "octavo/runtime/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace octavo::runtime {
namespace {

TEST(PartsOf, AreEvenSharesOfTheThreads) {
  EXPECT_EQ(PartsOf(128, 48, 2), 2);  // three parts of 48 rows would leave one thread idle for a third of the time
  EXPECT_EQ(PartsOf(100, 48, 8), 3);  // fewer than threads: as many as the grain allows
  EXPECT_EQ(PartsOf(48, 48, 2), 1);
  EXPECT_EQ(PartsOf(1000, 1, 1), 1);
  for (int threads = 2; threads < 20; ++threads) {
    for (int64_t n = 1; n < 400; ++n) {
      const int64_t parts = PartsOf(n, 7, threads);
      ASSERT_GE(parts, 1);
      ASSERT_LE(parts, 4 * threads);
      ASSERT_LE(parts, (n + 6) / 7) << "more parts than grains";
      if (parts > threads) {
        ASSERT_EQ(parts % threads, 0);
      }
    }
  }
}

TEST(Threads, DoEveryTaskOnce) {
  for (int count : {1, 2, 5}) {
    const Threads threads(count);
    std::vector<std::atomic<int>> done(100);
    threads.For(100, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
    for (const auto& d : done) EXPECT_EQ(d, 1);
  }
}

}  // namespace
}  // namespace octavo::runtime
