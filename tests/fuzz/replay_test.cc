// Every file of tests/data/hostile through every fuzz target: what once broke octavo does not break it again, and takes no more than 1 GB and
// four times the file. Each file has a process of its own, so that one that fails is named and the others are still tried.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "octavo/fuzz/child.h"
#include "octavo/fuzz/targets.h"

namespace octavo::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> Cases() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(OCTAVO_SOURCE_DIR) / "tests/data/hostile")) {
    if (entry.is_regular_file() && entry.path().extension() != ".md") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::string Bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

TEST(Replay, EveryCaseThroughEveryTarget) {
  const std::vector<fs::path> files = Cases();
  ASSERT_FALSE(files.empty());
  int runs = 0;
  for (const fs::path& file : files) {
    const std::string bytes = Bytes(file);
    std::string at_hand;
    int ended = 0;
    const Ended child = RunChild(
        [&](Report& report) {
          for (const Target& target : AllTargets()) {
            report.Line("target", target.name);
            report.Begin(0);
            target.run(bytes);
            report.End();
          }
        },
        [&](std::string_view line) {
          if (line.starts_with("target\t")) at_hand = line.substr(7);
          if (line.starts_with("finding\t")) ADD_FAILURE() << file << ", target " << at_hand << ": " << line;
          if (!line.starts_with("end\t")) return;
          ++ended;
          if (kSanitized) return;
          const auto peak = static_cast<size_t>(std::stoll(std::string(line.substr(4)))) * 1024;
          EXPECT_LE(peak, (size_t{1} << 30) + 4 * bytes.size()) << file << ", target " << at_hand;
        });
    EXPECT_TRUE(child.well) << file << ", target " << at_hand << ": " << child.how << "\n" << child.printed;
    runs += ended;
  }
  std::printf("%zu cases, %d runs\n", files.size(), runs);
}

}  // namespace
}  // namespace octavo::fuzz
