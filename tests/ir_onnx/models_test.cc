// The zoo: read, written, read again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/tests/ir_onnx/compare.h"
#include "octavo/tests/ir_onnx/make_model.h"
#include "octavo/tests/unpacked.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

struct Count {
  int files = 0, read = 0, round_trip = 0;
};

std::vector<fs::path> ModelsIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  if (!fs::is_directory(folder)) return paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

// Empty, or what went wrong; `read` tells whether the first reading succeeded.
std::string RoundTrip(const fs::path& path, bool& read) {
  auto first = ir::onnx::ReadFile(path);
  if (!first) return first.error().message;
  read = true;
  if (const std::string d = Defect(*first); !d.empty()) return "defect: " + d;
  if (const auto s = ir::VerifyStatus(*first); !s) return "verifier: " + s.error().message;
  auto bytes = ir::onnx::WriteBytes(*first);
  if (!bytes) return bytes.error().message;
  auto second = ir::onnx::ReadBytes(*bytes);
  if (!second) return "again: " + second.error().message;
  if (const std::string d = Difference(*first, *second); !d.empty()) return "differs: " + d;
  if (ir::ToText(*first) != ir::ToText(*second)) return "prints differently";
  auto again = ir::onnx::WriteBytes(*second);
  if (!again || *again != *bytes) return "the second export has other bytes";
  if (*ir::onnx::WriteBytes(*first) != *bytes) return "the same graph gives other bytes";
  return {};
}

void TryAll(const fs::path& folder) {
  Count count;
  for (const fs::path& path : ModelsIn(folder)) {
    ++count.files;
    bool read = false;
    const std::string wrong = RoundTrip(path, read);
    count.read += read ? 1 : 0;
    count.round_trip += wrong.empty() ? 1 : 0;
    EXPECT_EQ(wrong, "") << path.filename();
  }
  std::printf("%-28s %4d graphs, %4d read, %4d the same after export and import\n",
              folder.parent_path().filename().append(folder.filename().string()).c_str(), count.files, count.read,
              count.round_trip);
}

class Zoo : public testing::TestWithParam<std::pair<const char*, size_t>> {};
TEST_P(Zoo, RoundTrip) {
  const auto [name, graphs] = GetParam();
  EXPECT_EQ(ModelsIn(Unpacked() / "zoo" / name).size(), graphs);
  TryAll(Unpacked() / "zoo" / name);
}
INSTANTIATE_TEST_SUITE_P(All, Zoo,
                         testing::Values(std::pair{"float", 149}, std::pair{"quantized", 157}, std::pair{"extra", 106}),
                         [](const auto& info) { return info.param.first; });

// The MiniLM graphs hold no weights: every initializer points into model.safetensors, at odd offsets too. A sparse file
// of the right size stands for it here.
TEST(Models, MiniLm) {
  const fs::path folder = fs::path(OCTAVO_SOURCE_DIR) / "tests" / "data" / "minilm";
  ASSERT_EQ(ModelsIn(folder).size(), 3U);
  TempFolder temp;
  std::ofstream(temp.path() / "model.safetensors");
  fs::resize_file(temp.path() / "model.safetensors", 90868376);
  for (const fs::path& path : ModelsIn(folder)) {
    const fs::path copy = temp.path() / path.filename();
    fs::copy_file(path, copy);
    auto g = ir::onnx::ReadFile(copy);
    ASSERT_TRUE(g) << g.error().message;
    EXPECT_EQ(Defect(*g), "");
    EXPECT_TRUE(ir::VerifyStatus(*g));
    EXPECT_EQ(g->inputs().size(), 3U);
    EXPECT_EQ(g->outputs().size(), 2U);
    size_t mapped = 0;
    for (ir::NodeId id : g->NodesInOrder()) {
      const ir::Tensor* t = g->ConstantOf(g->node(id).output());
      if (t != nullptr && t->buffer() && t->buffer()->file() == "model.safetensors") mapped += t->byte_size();
    }
    EXPECT_GT(mapped, 80'000'000U) << "weights are mapped, not copied";
    const fs::path out = temp.path() / ("out_" + path.filename().string());
    ASSERT_TRUE(ir::onnx::WriteFile(*g, out, {.inline_limit = 1 << 20}));
    auto second = ir::onnx::ReadFile(out);
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_EQ(Difference(*g, *second), "") << path.filename();
    std::printf("%-28s %5zu nodes, %zu MB mapped\n", path.filename().c_str(), g->node_count(), mapped >> 20);
  }
}

}  // namespace
}  // namespace octavo::tests
