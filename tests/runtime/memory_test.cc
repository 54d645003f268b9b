// What a process holds after many Sessions and many shapes is what it held after some: nothing is lost, every cache has a bound.
// OCTAVO_MEMORY_FULL=1: 2,000 Sessions and 20,000 shapes, some minutes.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "families.h"
#include "octavo/ir/text.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using testing::Families;
using testing::Family;
using testing::Maker;
using testing::Sizes;

constexpr uint32_t kSeed = 5;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasured = false;
#else
constexpr bool kMeasured = true;
#endif

bool Full() { return std::getenv("OCTAVO_MEMORY_FULL") != nullptr; }

double ResidentMegabytes() {
  malloc_trim(0);  // what is free but kept by malloc is not ours
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

Maker AllFamilies() {
  Maker maker(7);
  for (const Family& family : Families()) maker.family = family.name, family.add(maker);
  std::printf("seed %u\n", kSeed);
  return maker;
}

// One of 30 shapes, so that caches of shapes are full half way; over the full length any.
Sizes RandomSizes(std::mt19937& gen) {
  std::mt19937 few(gen() % 30);
  std::mt19937& from = Full() ? gen : few;
  const auto upto = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(1, n)(from); };
  const int64_t batch = upto(3), rows = upto(60);
  return {batch, rows, upto(300)};
}

// Memory after `done` of `all` steps, for half of them and more; flat: no later value is 5 % above the first three (one alone may lie at the
// bottom of what the shapes of a few runs need).
class Curve {
 public:
  explicit Curve(int all) : all_(all) {}
  void Step(int done) {
    if (done < all_ / 2 || (done - all_ / 2) % (all_ / 10) != 0) return;
    const double now = ResidentMegabytes();
    if (++seen_ <= 3) first_ = std::max(first_, now);
    most_ = std::max(most_, now);
    std::printf("after %6d of %d: %.1f MB\n", done, all_, now);
  }
  void ExpectFlat() const { EXPECT_LE(most_, 1.05 * first_); }

 private:
  int all_, seen_ = 0;
  double first_ = 0, most_ = 0;
};

// A Loop without end that keeps 4.6 KB of each iteration, from a body whose convolution needs 31 KB while it runs: by kernels and by the
// interpreter the limit of the run ends it, and the process takes little more than the limit.
TEST(Memory, OfWhatALoopKeepsCountsToItsRun) {
  constexpr int64_t kMost = 200'000'000;
  for (const bool kernels : {true, false}) {
    auto graph = ir::ParseText(R"(graph "" {
      opset "" 18
      input %x : f32[4,3,6,12]
      input %w : f32[4,3,3,3]
      %go = Constant() {value = tensor bool[] (1)} : bool[]
      %most = Constant() {value = tensor s64[] (72340172838076673)} : s64[]
      %y = Loop(%most, %go, %x, %w) {body = graph "" {
        input %iteration : s64[]
        input %go : bool[]
        input %x : f32[4,3,6,12]
        input %w : f32[4,3,3,3]
        %c = Conv(%x, %w) {pads = [1, 1, 1, 1]} : f32[4,4,6,12]
        %r = Relu(%c) : f32[4,4,6,12]
        output "go" = %go : ?
        output "r" = %r : ?
      }, octavo_captures = 2} : f32[?,4,4,6,12]
      output "y" = %y : ?
    })");
    ASSERT_TRUE(graph) << graph.error().message;
    graph->info.limits.max_memory = kMost;
    const auto model = Model::Compile(std::move(*graph), {.threads = 1, .kernels = kernels});
    ASSERT_TRUE(model) << model.error().message;
    const double before = ResidentMegabytes();
    const auto y = model->Run({{"x", ir::Tensor::Zeros(ir::DType::kF32, {4, 3, 6, 12})},
                               {"w", ir::Tensor::Zeros(ir::DType::kF32, {4, 3, 3, 3})}});
    ASSERT_FALSE(y);
    EXPECT_NE(y.error().message.find("beyond the limit of 200 MB"), std::string::npos) << y.error().message;
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    const double peak = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
    std::printf("%.0f MB at most, %.0f before\n", peak, before);
    EXPECT_TRUE(!kMeasured || peak <= before + 1.15 * kMost / 1e6);
  }
}

TEST(Memory, IsFlatOverSessions) {
  const int all = Full() ? 2000 : 100;
  const Maker maker = AllFamilies();
  std::mt19937 gen(kSeed);
  Curve curve(all);
  for (int done = 1; done <= all; ++done) {
    auto model = Model::Compile(maker.graph, {.threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    for (int run = 0; run < 2; ++run) {
      const auto got = model->Run(maker.Inputs(RandomSizes(gen), gen));
      ASSERT_TRUE(got) << got.error().message;
    }
    curve.Step(done);
  }
  curve.ExpectFlat();
}

TEST(Memory, IsFlatOverShapes) {
  const int all = Full() ? 20000 : 600;
  const Maker maker = AllFamilies();
  std::mt19937 gen(kSeed);
  const auto model = Model::Compile(maker.graph, {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  Curve curve(all);
  for (int done = 1; done <= all; ++done) {
    const auto got = model->Run(maker.Inputs(RandomSizes(gen), gen));
    ASSERT_TRUE(got) << got.error().message;
    curve.Step(done);
  }
  curve.ExpectFlat();
}

}  // namespace
}  // namespace octavo::runtime
