// Every file that octavo writes of the committed graphs has the bytes that it had: a change that means to keep what octavo writes must keep golden.txt.
// A change that means to alter files writes it anew (OCTAVO_GOLDEN_WRITE=FILE) and says in its commit why which lines change. The plain form of every
// kernel gathers the ranges, so the bytes do not depend on the CPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <format>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "octavo/api/optimize.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/unpacked.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

uint64_t HashOf(const std::string& bytes) {
  uint64_t h = 1469598103934665603ULL;
  for (const unsigned char c : bytes) h = (h ^ c) * 1099511628211ULL;
  return h;
}

// The first case of the .npz beside the model.
std::vector<ir::TensorMap> BatchOf(const ir::Graph& graph, const fs::path& file) {
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz").string());
  ir::TensorMap inputs;
  if (!arrays) return {};
  for (const ir::ValueId v : graph.inputs()) {
    const auto it = arrays->find("0/in/" + graph.value(v).name);
    if (it != arrays->end()) inputs[graph.value(v).name] = it->second;
  }
  return {inputs};
}

// "1a2b..." of the file that the recipe gives, or the sentence that it ends with.
std::string Written(const fs::path& file, const std::string& recipe) {
  auto graph = ir::onnx::ReadFile(file.string());
  if (!graph) return graph.error().message;
  api::OptimizeOptions options;
  options.recipe = recipe;
  options.arch = kernels::Arch::kScalar;
  options.threads = 1;
  const auto data = quant::InMemoryData(BatchOf(*graph, file), quant::InputsOf(*graph));
  if (recipe == "int8" || recipe == "fp8") options.data = data.get();
  auto result = api::Optimize(std::move(*graph), options);
  if (!result) return result.error().message;
  const auto bytes = ir::onnx::WriteBytes(result->graph);
  return bytes ? std::format("{:016x}", HashOf(*bytes)) : bytes.error().message;
}

// The list says which recipes a file takes. A file that is not in it takes float and one that its name chooses, so that every recipe meets every family
// and the test takes half a minute.
std::set<std::string> RecipesOf(const std::string& stem, const std::map<std::string, std::string>& golden) {
  static const std::vector<std::string> kRecipes = {"int8", "dynamic", "weights8", "fp8", "dynamic4", "weights4"};
  std::set<std::string> recipes;
  for (auto it = golden.lower_bound(stem + " "); it != golden.end() && it->first.starts_with(stem + " "); ++it)
    recipes.insert(it->first.substr(stem.size() + 1));
  if (recipes.empty()) recipes = {"float", kRecipes[HashOf(stem) % kRecipes.size()]};
  return recipes;
}

TEST(Golden, FilesKeepTheirBytes) {
  std::map<std::string, std::string> golden, now;
  const fs::path list = fs::path(OCTAVO_SOURCE_DIR) / "tests/models/golden.txt";
  std::ifstream in(list);
  for (std::string line; std::getline(in, line);) {
    const size_t bar = line.find(" | ");
    if (bar != std::string::npos) golden[line.substr(0, bar)] = line.substr(bar + 3);
  }
  std::set<fs::path> files;
  for (const fs::path& root : {tests::Unpacked() / "zoo", fs::path(OCTAVO_SOURCE_DIR) / "tests/data/models",
                               fs::path(OCTAVO_SOURCE_DIR) / "tests/data/vendor"}) {
    for (const auto& e : fs::recursive_directory_iterator(root)) {
      if (e.path().extension() == ".onnx") files.insert(e.path());
    }
  }
  for (const fs::path& file : files) {
    const std::string stem = file.stem().string();
    for (const std::string& recipe : RecipesOf(stem, golden)) now[stem + " " + recipe] = Written(file, recipe);
  }
  if (const char* to = std::getenv("OCTAVO_GOLDEN_WRITE")) {
    std::ofstream out(to);
    for (const auto& [name, hash] : now) out << name << " | " << hash << "\n";
    GTEST_SKIP() << "written to " << to;
  }
  EXPECT_GT(golden.size(), 800u);
  EXPECT_EQ(golden.size(), now.size());
  int other = 0;
  for (const auto& [name, hash] : now) {
    const auto it = golden.find(name);
    if (it != golden.end() && it->second == hash) continue;
    if (++other <= 20)
      ADD_FAILURE() << name << " is " << hash << ", was " << (it == golden.end() ? "not there" : it->second);
  }
  EXPECT_EQ(other, 0);
  std::printf("%zu files\n", now.size());
}

}  // namespace
}  // namespace octavo
