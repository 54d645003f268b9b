#include "octavo/kernels/arch/arch.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "octavo/kernels/arch/pairs.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

constexpr Arch kAll[] = {Arch::kScalar, Arch::kAvx2, Arch::kAvxVnni, Arch::kAvx512, Arch::kAvx512Vnni, Arch::kAmx};

class ArchOverride : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* old = std::getenv("OCTAVO_ARCH");
    had_ = old != nullptr;
    if (had_) old_ = old;
  }
  void TearDown() override {
    if (had_) {
      setenv("OCTAVO_ARCH", old_.c_str(), 1);
    } else {
      unsetenv("OCTAVO_ARCH");
    }
  }

 private:
  bool had_ = false;
  std::string old_;
};

TEST(Arch, NamesRoundTrip) {
  for (Arch arch : kAll) {
    Arch parsed = Arch::kScalar;
    ASSERT_TRUE(ArchFromName(Name(arch), &parsed)) << Name(arch);
    EXPECT_EQ(parsed, arch);
  }
  Arch parsed = Arch::kAvx2;
  EXPECT_FALSE(ArchFromName("sse9", &parsed));
  EXPECT_EQ(parsed, Arch::kAvx2);
}

TEST(Arch, SupportedIsAscendingFromScalar) {
  const std::vector<Arch>& archs = SupportedArchs();
  ASSERT_FALSE(archs.empty());
  EXPECT_EQ(archs.front(), Arch::kScalar);
  for (size_t i = 1; i < archs.size(); ++i) EXPECT_LT(archs[i - 1], archs[i]);
  EXPECT_THAT(CpuDescription(), ::testing::HasSubstr(", "));
}

TEST(Arch, AgreesWithTheCompilersOwnDetection) {
  const auto has = [](Arch arch) { return std::ranges::count(SupportedArchs(), arch) == 1; };
  __builtin_cpu_init();
  if (has(Arch::kAvx2)) {
    EXPECT_TRUE(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  }
  if (has(Arch::kAvx512)) {
    EXPECT_TRUE(__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
  }
  if (has(Arch::kAvx512Vnni)) {
    EXPECT_TRUE(__builtin_cpu_supports("avx512vnni"));
  }
  EXPECT_EQ(has(Arch::kAvx2), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

// Each feature that is taken away takes its path and the higher ones that build on it.
TEST(Arch, PathsNeedAllTheirFeatures) {
  CpuFeatures all{true, true, true, true, true, true, true, true, true, true};
  const auto best_without = [all](bool CpuFeatures::* feature) {
    CpuFeatures f = all;
    f.*feature = false;
    return ArchsOf(f).back();
  };
  EXPECT_EQ(ArchsOf(all), std::vector<Arch>(std::begin(kAll), std::end(kAll)));
  EXPECT_EQ(best_without(&CpuFeatures::avx2), Arch::kScalar);
  EXPECT_EQ(best_without(&CpuFeatures::avx512), Arch::kAvxVnni);
  EXPECT_EQ(best_without(&CpuFeatures::avx512_ice_lake), Arch::kAvx512);
  EXPECT_EQ(best_without(&CpuFeatures::amx_tile), Arch::kAvx512Vnni);
  EXPECT_EQ(best_without(&CpuFeatures::amx_int8), Arch::kAvx512Vnni);
  EXPECT_EQ(best_without(&CpuFeatures::tile_state), Arch::kAvx512Vnni);  // the system did not grant tiles
  EXPECT_EQ(best_without(&CpuFeatures::avx_vnni), Arch::kAmx);
  EXPECT_EQ(best_without(&CpuFeatures::amx_bf16), Arch::kAvx512Vnni);
  EXPECT_EQ(ArchsOf({}), std::vector<Arch>{Arch::kScalar});
}

// Through the trap, which adds as the manual says; natively it is what DetectedFeatures found.
TEST(Arch, AsksPairsOfBf16ForTheirOrder) {
  if (ExecutionOfPairs(Arch::kAvx512) == Execution::kNone)
    GTEST_SKIP() << Name(Arch::kAvx512) << ": not run on this CPU";
  if (ExecutionOfPairs(Arch::kAvx512) == Execution::kNative) {
    EXPECT_EQ(PairsAreAddedInOrder(), DetectedFeatures().bf16_pairs);
    return;
  }
  EXPECT_FALSE(DetectedFeatures().bf16_pairs);
  trap::Install();
  EXPECT_TRUE(PairsAreAddedInOrder());
  // Each other way to add is noticed.
  for (const trap::PairOrder order : {trap::PairOrder::kSwapped, trap::PairOrder::kProductsFirst,
                                      trap::PairOrder::kRoundedOnce, trap::PairOrder::kTruncated}) {
    trap::SetPairOrder(order);
    EXPECT_FALSE(PairsAreAddedInOrder()) << static_cast<int>(order);
  }
  trap::SetPairOrder(trap::PairOrder::kManual);
  EXPECT_TRUE(PairsAreAddedInOrder());
  EXPECT_EQ(trap::TakeProblem(), "");
}

TEST_F(ArchOverride, NamesAPath) {
  setenv("OCTAVO_ARCH", "scalar", 1);
  std::string problem;
  EXPECT_EQ(BestArch(&problem), Arch::kScalar);
  EXPECT_EQ(problem, "");
  unsetenv("OCTAVO_ARCH");
  EXPECT_EQ(BestArch(&problem), SupportedArchs().back());
  EXPECT_EQ(problem, "");
}

TEST_F(ArchOverride, NonsenseIsASentence) {
  setenv("OCTAVO_ARCH", "mmx", 1);
  std::string problem;
  EXPECT_EQ(BestArch(&problem), SupportedArchs().back());
  EXPECT_THAT(problem, ::testing::HasSubstr("'mmx', which names no instruction set"));
  for (Arch arch : kAll) {
    if (std::ranges::count(SupportedArchs(), arch) != 0) continue;
    setenv("OCTAVO_ARCH", std::string(Name(arch)).c_str(), 1);
    problem.clear();
    EXPECT_NE(BestArch(&problem), arch);
    EXPECT_THAT(problem, ::testing::HasSubstr("this CPU does not have"));
  }
}

}  // namespace
}  // namespace octavo::kernels
