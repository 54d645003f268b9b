// Shared by the kernel tests: a seed that is printed and can be given back, and the Archs under test by name.
#ifndef OCTAVO_TESTS_KERNELS_TESTING_H_
#define OCTAVO_TESTS_KERNELS_TESTING_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "octavo/kernels/arch/arch.h"
#include "trap/trap.h"

namespace octavo::kernels {

// OCTAVO_SEED=n replays a run.
inline std::mt19937& SeededRandom() {
  static std::mt19937 random = [] {
    const char* given = std::getenv("OCTAVO_SEED");
    const unsigned seed =
        given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
    std::printf("replay with OCTAVO_SEED=%u\n", seed);
    return std::mt19937(seed);
  }();
  return random;
}

inline int RandomInt(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(SeededRandom()); }
inline float RandomFloat(float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(SeededRandom()); }

// How the machine code of an Arch runs here: by the CPU, or instruction by instruction through the trap (trap/trap.h).
enum class Execution { kNone, kNative, kTrap };
inline Execution ExecutionOf(Arch arch) {
  const auto has = [](Arch a) { return std::ranges::count(SupportedArchs(), a) != 0; };
  if (has(arch)) return Execution::kNative;
  // What the trap does not know, the CPU must have.
  const bool trap = (arch == Arch::kAvxVnni && has(Arch::kAvx2)) || (arch == Arch::kAmx && has(Arch::kAvx512Vnni));
  return trap ? Execution::kTrap : Execution::kNone;
}

// The same of code on AVX512_BF16, whose other instructions are those of `arch`.
inline Execution ExecutionOfPairs(Arch arch) {
  if (std::ranges::count(SupportedArchs(), arch) == 0) return Execution::kNone;
  return DetectedFeatures().avx512_bf16 ? Execution::kNative : Execution::kTrap;
}

// The Archs that have vector code of their own. One that cannot run here is skipped, by name, with that reason.
inline std::vector<Arch> VectorArchs() {
  return {Arch::kAvx2, Arch::kAvxVnni, Arch::kAvx512, Arch::kAvx512Vnni, Arch::kAmx};
}

// All that run here, in one way or the other; the trap is ready for those that need it.
inline std::vector<Arch> RunnableArchs() {
  std::vector<Arch> archs = {Arch::kScalar};
  for (const Arch arch : VectorArchs()) {
    const Execution execution = ExecutionOf(arch);
    if (execution == Execution::kTrap) trap::Install();
    if (execution != Execution::kNone) archs.push_back(arch);
  }
  return archs;
}

class ArchTest : public ::testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    const Execution execution = ExecutionOf(GetParam());
    if (execution == Execution::kNone) {
      GTEST_SKIP() << Name(GetParam()) << ": not run on this CPU (" << CpuDescription() << ")";
    }
    if (execution == Execution::kTrap) trap::Install();
  }
  void TearDown() override {
    EXPECT_EQ(trap::TakeProblem(), "");
    EXPECT_TRUE(trap::TilesReleased()) << "a kernel left its tiles configured";
  }
};

inline std::string ArchTestName(const ::testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }

}  // namespace octavo::kernels

#endif  // OCTAVO_TESTS_KERNELS_TESTING_H_
