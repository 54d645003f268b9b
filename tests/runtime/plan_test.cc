// Buffers that live at the same time never overlap, and the arena is not larger than it must be for chains.
#include "octavo/runtime/plan.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

namespace octavo::runtime {
namespace {

TEST(PlanMemory, ChainNeedsTwoBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({640, i, i + 1});
  EXPECT_EQ(PlanMemory(chain).arena_bytes, 1280u);
}

TEST(PlanMemory, RandomLivesNeverOverlap) {
  const uint64_t seed = 7;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lives;
    const int n = static_cast<int>(rng() % 40) + 1;
    for (int i = 0; i < n; ++i) {
      const auto first = static_cast<int32_t>(rng() % 50);
      lives.push_back({rng() % 5000 + 1, first, first + static_cast<int32_t>(rng() % 10)});
    }
    const MemoryPlan plan = PlanMemory(lives);
    for (size_t a = 0; a < lives.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % 64, 0u);
      EXPECT_LE(plan.offsets[a] + lives[a].bytes, plan.arena_bytes);
      for (size_t b = a + 1; b < lives.size(); ++b) {
        const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
        const bool overlap =
            plan.offsets[a] < plan.offsets[b] + lives[b].bytes && plan.offsets[b] < plan.offsets[a] + lives[a].bytes;
        EXPECT_FALSE(together && overlap) << "round " << round << " buffers " << a << " and " << b;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::runtime
