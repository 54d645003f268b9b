// ONNX's own checker accepts what we write, as far as it knows the opset.
#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/unpacked.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

std::string Check(const std::string& bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return "not a model";
  try {
    onnx::checker::check_model(model);
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

void CheckAll(const fs::path& folder) {
  int files = 0, newer = 0, passed = 0, as_the_file = 0;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    const auto g = ir::onnx::ReadFile(path);
    ASSERT_TRUE(g) << g.error().message;
    ++files;
    if (g->info.opsets.at("") > 22 || g->info.ir_version > 10) {
      ++newer;
      continue;
    }
    const std::string wrong = Check(*ir::onnx::WriteBytes(*g));
    if (wrong.empty()) {
      ++passed;
      continue;
    }
    // Ops that only ONNX Runtime knows have no schema; what it says of the file we read, it may say of ours.
    std::string original;
    try {
      onnx::checker::check_model(path.string());
    } catch (const std::exception& e) {
      original = e.what();
    }
    EXPECT_FALSE(original.empty()) << path.filename() << ": " << wrong;
    as_the_file += original.empty() ? 0 : 1;
  }
  std::printf("%-12s %d exported, %d accepted, %d refused like the file itself, %d newer than the checker\n",
              folder.filename().c_str(), files, passed, as_the_file, newer);
  EXPECT_GT(passed, 0);
}

class Checker : public testing::TestWithParam<const char*> {};
TEST_P(Checker, AcceptsTheZoo) { CheckAll(Unpacked() / "zoo" / GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, Checker, testing::Values("float", "quantized", "extra"));

}  // namespace
}  // namespace octavo::tests
