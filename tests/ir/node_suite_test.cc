// The whole node suite of ONNX 1.23.2 (tests/data/onnx-1.23.2; what it shares with Debian's is read there): what passes, what is refused
// and why, by op and by element type, as node_suite.txt says. Nothing may give another result than expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <format>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "octavo/tests/docs.h"
#include "octavo/tests/ir/node_case.h"
#include "octavo/tests/unpacked.h"

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name, op, type;  // type: of the first input
};
std::vector<Case> ReadCases(const fs::path& file) {
  std::vector<Case> cases;
  std::ifstream in(file);
  for (Case c; in >> c.name >> c.op >> c.type;) cases.push_back(c);
  return cases;
}

struct Counts {
  size_t passed = 0, all = 0;
};

std::string Rows(const std::map<std::string, Counts>& counts) {
  std::string out;
  for (const auto& [name, n] : counts) out += std::format("{:<28} {:>4} of {:>4}\n", name, n.passed, n.all);
  return out;
}

// ONNX leaves open which numbers are drawn; its data are NumPy's, and octavo's seeds give others.
bool IsOpen(const std::string& name) { return name == "test_bernoulli_seed" || name == "test_bernoulli_seed_expanded"; }
constexpr std::string_view kOpen = "ONNX leaves open which numbers a seed draws";

TEST(NodeSuite, IsWhatTheTableSays) {
  const fs::path root = tests::Unpacked() / "onnx-1.23.2", debian = "/usr/share/libonnx-testdata/data/node";
  if (!fs::exists(debian)) GTEST_SKIP() << "libonnx-testdata is not installed";
  const std::vector<Case> cases = ReadCases(root / "cases.txt");
  ASSERT_EQ(cases.size(), 1883u);
  std::map<std::string, Counts> by_op, by_type;
  Counts total;
  std::string refused;
  for (const Case& c : cases) {
    Verdict v = RunNodeCase(root / c.name, debian);
    if (v.outcome == Outcome::kFailed && IsOpen(c.name)) v = {Outcome::kRefused, std::string(kOpen)};
    EXPECT_NE(v.outcome, Outcome::kFailed) << c.name << ": " << v.reason;
    for (Counts* n : {&by_op[c.op], &by_type[c.type], &total}) {
      n->passed += v.outcome == Outcome::kPassed ? 1 : 0;
      ++n->all;
    }
    if (v.outcome == Outcome::kRefused) refused += std::format("{}: {}\n", c.name, v.reason);
  }
  const std::string table = std::format(
      "ONNX 1.23.2's node tests: {} of {} pass, none gives another result, the others are refused.\n\nBy op\n{}\nBy "
      "the "
      "element type of the first input\n{}\nRefused, and why\n{}",
      total.passed, total.all, Rows(by_op), Rows(by_type), refused);
  std::ifstream file(fs::path(OCTAVO_SOURCE_DIR) / "tests/ir/node_suite.txt");
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  if (table != expected) {
    const fs::path found = fs::path(testing::TempDir()) / "node_suite.txt";
    std::ofstream(found) << table;
    ADD_FAILURE() << "tests/ir/node_suite.txt says otherwise; what was found stands in " << found;
  }
  std::printf("%zu of %zu pass\n", total.passed, total.all);
  EXPECT_TRUE(tests::FamiliesSay(std::format("ONNX's own node tests: {} of {} pass", total.passed, total.all)));
}

}  // namespace
}  // namespace octavo::ir
