// Memory of packed weights: zeros, aligned, on shared mappings that go back to the system with their last array.
#include "octavo/kernels/simd/weights.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

TEST(WeightArray, HoldsZerosOnWholeLinesOfItsOwn) {
  std::vector<WeightArray<uint8_t>> arrays;
  for (size_t i = 0; i < 200; ++i) {
    const size_t size =
        i % 50 == 0
            ? 40'000'000
            : static_cast<size_t>(RandomInt(0, 300'000));  // above a region of 32 MB, on both sides of the heap's
    auto& a = arrays.emplace_back(size);
    ASSERT_EQ(a.size(), size);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0U);
    ASSERT_TRUE(std::all_of(a.data(), a.data() + size, [](uint8_t v) { return v == 0; })) << i;
    std::fill_n(a.data(), size, static_cast<uint8_t>(i));
    if (i % 3 == 0)
      arrays[static_cast<size_t>(RandomInt(0, static_cast<int>(i)))] = {};  // some go, their neighbours stay
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto& a = arrays[i];
    EXPECT_TRUE(std::all_of(a.data(), a.data() + a.size(), [&](uint8_t v) { return v == static_cast<uint8_t>(i); }))
        << i;
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // there every array is the heap's, for its red zones
// Whether the address belongs to a mapping of this process.
bool IsMapped(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t dash = line.find('-');
    const uintptr_t begin = std::stoull(line.substr(0, dash), nullptr, 16);
    const uintptr_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
    if (address >= begin && address < end) return true;
  }
  return false;
}

TEST(WeightArray, NeighboursShareAMappingThatGoesBackWithTheLast) {
  constexpr size_t kSize = 40'000'000;  // its mapping is its own but for what fits behind it
  auto first = std::make_unique<WeightArray<int8_t>>(kSize);
  auto second = std::make_unique<WeightArray<int8_t>>(100'000);
  const auto address = reinterpret_cast<uintptr_t>(first->data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data()), address + kSize);
  first.reset();
  EXPECT_TRUE(IsMapped(address));
  second.reset();
  EXPECT_FALSE(IsMapped(address));
}
#endif

TEST(WeightArray, ThreadsTakeThemAtOnce) {
  std::vector<WeightArray<int32_t>> arrays(64);
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < arrays.size(); i += 8) {
        arrays[i] = WeightArray<int32_t>(50'000);
        std::fill_n(arrays[i].data(), 50'000, static_cast<int32_t>(i));
      }
    });
  }
  for (auto& t : threads) t.join();
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(std::count(arrays[i].data(), arrays[i].data() + 50'000, static_cast<int32_t>(i)), 50'000) << i;
  }
}

TEST(WeightArray, RefusesWhatNoMachineHas) {
  EXPECT_THROW(WeightArray<int32_t>(std::numeric_limits<size_t>::max() / 4), std::bad_alloc);
  EXPECT_EQ(WeightArray<int32_t>().size(), 0U);
  EXPECT_EQ(WeightArray<int32_t>(0).size(), 0U);
}

}  // namespace
}  // namespace octavo::kernels
