// ONNX's own node tests through the reader and the interpreter: Debian's (libonnx-testdata, ONNX 1.17), and what ONNX 1.22 changed.
// Those of ONNX 1.23, with what is refused and why: node_suite_test.cc. Here a model gives the expected outputs or is refused, but for
// the few that are listed and explained.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "octavo/tests/ir/node_case.h"
#include "octavo/tests/unpacked.h"

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

// Models of Debian's data that give another result (a star at the end stands for any text), and why.
struct Exception {
  std::string_view name, reason;
};
constexpr Exception kExceptions[] = {
    {"test_adam_multiple", "the model lost the epsilon that its data were made with; that of 1.23 has it"},
    {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
     "the data divides by positions beyond the padded input; ONNX Runtime, PyTorch and later ONNX do not"},
    {"test_bernoulli_seed*", "ONNX leaves open which numbers a seed draws"},
    {"test_cast_FLOAT_to_BFLOAT16", "the data is truncated, the op rounds to nearest even"},
    {"test_castlike_FLOAT_to_BFLOAT16*", "the data is truncated, the op rounds to nearest even"},
    {"test_cast_FLOAT_to_INT4",
     "-9 is out of range: undefined; ONNX 1.17's data clamp it, later ones wrap, as octavo does"},
    {"test_cast_FLOAT16_to_INT4", "as above"},
    {"test_cast_FLOAT_to_UINT4", "as above"},
    {"test_cast_FLOAT16_to_UINT4", "as above"},
    {"test_qlinearmatmul_2D_int8_*", "the data wraps where ONNX saturates: -236 became 20"},
    {"test_qlinearmatmul_3D_int8_*", "the data wraps where ONNX saturates: -139 became 117"},
};

const Exception* ExceptionFor(std::string_view name) {
  for (const Exception& e : kExceptions) {
    const bool open = e.name.ends_with('*');
    if (open ? name.starts_with(e.name.substr(0, e.name.size() - 1)) : name == e.name) return &e;
  }
  return nullptr;
}

class OnnxTests : public ::testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(OnnxTests, GiveTheExpectedOutputs) {
  const auto [category, least_passed] = GetParam();
  const fs::path root = fs::path("/usr/share/libonnx-testdata/data") / category;
  if (!fs::exists(root)) GTEST_SKIP() << "libonnx-testdata is not installed";
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "model.onnx")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  std::map<Outcome, size_t> counts;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename();
    const Verdict v = RunNodeCase(folder);
    ++counts[v.outcome];
    if (v.outcome == Outcome::kPassed) continue;
    const Exception* exception = ExceptionFor(name);
    std::printf("%s: %s%s\n", name.c_str(), v.reason.c_str(),
                exception != nullptr ? std::format(" [{}]", exception->reason).c_str() : "");
    EXPECT_TRUE(v.outcome == Outcome::kRefused || exception != nullptr) << name << ": " << v.reason;
  }
  std::printf("%s: %zu models: %zu passed, %zu differ, %zu refused\n", category, folders.size(),
              counts[Outcome::kPassed], counts[Outcome::kFailed], counts[Outcome::kRefused]);
  EXPECT_GE(counts[Outcome::kPassed], least_passed);
}

// The numbers are what passes with Debian 13's data; more is welcome.
INSTANTIATE_TEST_SUITE_P(Debian, OnnxTests,
                         ::testing::Values(std::pair<const char*, size_t>{"node", 1220},
                                           std::pair<const char*, size_t>{"simple", 20}),
                         [](const auto& info) { return std::string(info.param.first); });

// The cases that ONNX 1.22 changed, as 1.20.1 had them: with the older meaning they pass, with the newer one they do not.
TEST(Onnx120, AttentionHadAnotherOrder) {
  size_t cases = 0, told_apart = 0;
  for (const auto& entry : fs::directory_iterator(tests::Unpacked() / "onnx-1.20.1")) {
    SCOPED_TRACE(entry.path().filename().string());
    ++cases;
    const Verdict old = RunNodeCase(entry.path(), {}, onnx::AttentionOrder::kOnnx118);
    EXPECT_EQ(old.outcome, Outcome::kPassed) << old.reason;
    told_apart += RunNodeCase(entry.path(), {}, onnx::AttentionOrder::kOnnx122).outcome == Outcome::kFailed ? 1 : 0;
  }
  EXPECT_EQ(cases, 9u);
  EXPECT_EQ(told_apart, cases);
}

}  // namespace
}  // namespace octavo::ir
