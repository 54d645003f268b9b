// Buffers that live at the same time never overlap, the arena is not larger than it must be for chains, and one arena serves all shapes.
#include "octavo/runtime/plan.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <utility>

#include "octavo/ir/memory.h"
#include "octavo/runtime/arenas.h"

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

TEST(Arenas, ServeEveryShapeWithTheLargest) {
  Arenas arenas;
  for (size_t bytes = 1000; bytes <= 64000; bytes += 1000) {
    const auto arena = arenas.Take(bytes);
    ASSERT_GE(arena->size(), bytes);
  }
  EXPECT_EQ(arenas.idle_bytes(), 64000u);
  const auto small = arenas.Take(10);
  EXPECT_EQ(small->size(), 64000u);
  EXPECT_EQ(arenas.idle_bytes(), 0u);
}

TEST(Arenas, ConcurrentRunsHaveTheirOwn) {
  Arenas arenas;
  auto a = arenas.Take(640), b = arenas.Take(6400);
  EXPECT_NE(a->data(), b->data());
  b.reset(), a.reset();
  EXPECT_EQ(arenas.idle_bytes(), 7040u);
  const auto c = arenas.Take(600), d = arenas.Take(0), e = arenas.Take(0);
  EXPECT_EQ(c->size(), 640u) << "the smallest that suffices";
  EXPECT_EQ(d->size(), 6400u);
  EXPECT_EQ(e->size(), 64u);
}

// However a run ends; a tensor that still lies in it keeps it.
TEST(Arenas, ComeBackWhenNobodyHoldsThem) {
  Arenas arenas;
  ir::Tensor tensor;
  {
    const auto arena = arenas.Take(640);
    tensor = ir::Tensor::View(ir::DType::kU8, {640}, arena, 0);
  }
  EXPECT_EQ(arenas.idle_bytes(), 0u);
  tensor = {};
  EXPECT_EQ(arenas.idle_bytes(), 640u);
}

TEST(Arenas, AreChargedToTheRunThatHasThem) {
  Arenas arenas;
  const ir::MemoryScope scope(1000);
  for (int i = 0; i < 5; ++i) {
    const auto arena = arenas.Take(640);
    EXPECT_THROW(arenas.Take(640), ir::OutOfMemory);
  }
  EXPECT_EQ(arenas.idle_bytes(), 640u);
}

}  // namespace
}  // namespace octavo::runtime
