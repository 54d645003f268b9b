// Every family of kernels in one Session that many threads use.
#include "stress.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "families.h"

namespace octavo::runtime {
namespace {

using testing::Families;
using testing::Family;
using testing::kStressSeed;
using testing::Maker;
using testing::Subject;

Subject AllFamilies() {
  Maker maker(7);
  for (const Family& family : Families()) maker.family = family.name, family.add(maker);
  std::mt19937 gen(kStressSeed);
  Subject s{"families", maker.graph, {}};
  const testing::Sizes sizes[] = {{1, 1, 7},   {1, 5, 5},   {2, 3, 33},   {1, 17, 40},
                                  {3, 9, 130}, {1, 64, 64}, {1, 2, 2500}, {2, 96, 96}};
  for (const testing::Sizes& size : sizes) s.inputs.push_back(maker.Inputs(size, gen));
  return s;
}

TEST(Stress, EveryFamilyOfKernels) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kStressSeed));
  testing::Stress(AllFamilies(), 4);
}

}  // namespace
}  // namespace octavo::runtime
