// Pages of mapped files that are given back: memory that comes again when it is read, and nobody else's.
#include "octavo/ir/mapped.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace octavo::ir {
namespace {

// Bytes of files that lie in this process's memory.
int64_t ResidentOfFiles() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::atoll(line.c_str() + 8) * 1024;
  }
  return -1;
}

int64_t Sum(const Tensor& t) {
  int64_t sum = 0;
  for (const uint8_t byte : t.as<uint8_t>()) sum += byte;
  return sum;
}

TEST(ForgetPages, GivesMemoryBackAndTheBytesStay) {
  constexpr int64_t kBytes = 48 << 20, kOdd = 12345;
  const auto path = std::filesystem::temp_directory_path() / ("octavo_mapped_test." + std::to_string(getpid()));
  {
    std::ofstream file(path, std::ios::binary);
    std::vector<char> some(1 << 20);
    for (size_t i = 0; i < some.size(); ++i) some[i] = static_cast<char>(i * 31 + i / 4096);
    for (int64_t at = 0; at < kBytes; at += static_cast<int64_t>(some.size())) file.write(some.data(), 1 << 20);
  }
  auto file = MapFile(path, "label");
  ASSERT_TRUE(file.has_value());
  std::filesystem::remove(path);
  const Tensor whole = Tensor::View(DType::kU8, {kBytes}, *file, 0);
  const Tensor inside = Tensor::View(DType::kU8, {kBytes - 2 * kOdd}, *file, kOdd);
  const int64_t before = ResidentOfFiles(), sum = Sum(whole), read = ResidentOfFiles(), part = Sum(inside);
  ASSERT_GE(read, before + kBytes / 2);
  ForgetPages(inside);
  EXPECT_LE(ResidentOfFiles(), read - kBytes / 2);
  EXPECT_EQ(Sum(inside), part);
  ForgetPages(whole);
  EXPECT_EQ(Sum(whole), sum);
}

TEST(ForgetPages, LeavesOtherMemoryAlone) {
  Tensor t = Tensor::Zeros(DType::kU8, {1 << 20});
  std::ranges::fill(t.mutable_as<uint8_t>(), uint8_t{7});
  ForgetPages(t);
  EXPECT_EQ(Sum(t), 7 << 20);
  ForgetPages(Tensor());
}

}  // namespace
}  // namespace octavo::ir
