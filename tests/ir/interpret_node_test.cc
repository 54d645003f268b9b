// ONNX's own node tests through the reader and the interpreter: Debian's (libonnx-testdata, ONNX 1.17), and those of ONNX 1.22
// of the ops that transformers are made of (tests/data/onnx-1.22.0, an archive). Every model whose ops are all in ops.def must
// give the expected outputs, but for the few that are listed and explained here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <format>
#include <map>
#include <string>
#include <vector>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/tensor_file.h"
#include "octavo/tests/docs.h"
#include "octavo/tests/unpacked.h"

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

// Models (a star stands for any text) that are refused or differ although their op is known, and why.
struct Exception {
  std::string_view name, reason;
};
constexpr std::string_view kNoSequences = "optionals and sequences are refused by the reader";
constexpr Exception kExceptions[] = {
    {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
     "the data divides by positions beyond the padded input; ONNX Runtime, PyTorch and later ONNX do not"},
    {"*FNUZ*", "FNUZ types are not octavo's"},
    {"test_*FLOAT4E2M1*", "octavo has no 4-bit floats"},
    {"test_*_float4e2m1", "octavo has no 4-bit floats"},
    {"test_*INT2*", "octavo has no 2-bit integers"},
    {"test_*linear_*int2", "octavo has no 2-bit integers"},
    {"test_cast_e8m0_*", "octavo has no E8M0"},
    {"test_castlike_FLOAT8E4M3FN_to_FLOAT*", "declares an FNUZ type in spite of its name"},
    {"test_castlike_FLOAT8E5M2_to_FLOAT*", "declares an FNUZ type in spite of its name"},
    {"test_cast_FLOAT_to_BFLOAT16", "the data is truncated, the op rounds to nearest even"},
    {"test_castlike_FLOAT_to_BFLOAT16*", "the data is truncated, the op rounds to nearest even"},
    {"test_qlinearmatmul_2D_int8_*", "the data wraps where ONNX saturates: -236 became 20"},
    {"test_qlinearmatmul_3D_int8_*", "the data wraps where ONNX saturates: -139 became 117"},
    {"test_training_dropout*", "training mode drops at random"},
    {"test_identity_opt", kNoSequences},
    {"test_identity_sequence", kNoSequences},
    {"test_if_opt", kNoSequences},
    {"test_if_seq", kNoSequences},
    {"test_loop13_seq", kNoSequences},
    {"test_loop16_seq_none", kNoSequences},
    {"test_optional_*", kNoSequences},
    {"test_sequence_*", kNoSequences},
    {"test_split_to_sequence_*", kNoSequences},
    {"test_not_*", "opset 1"},
    {"test_scan_sum", "Scan of opset 8 has a batch axis"},
    {"test_upsample_nearest", "Upsample whose scales are not constant"},
};

// Those of one release only.
constexpr Exception kExceptions122[] = {
    {"test_cast_FLOAT_to_INT4", "-9 is out of range: undefined; ONNX 1.17's data clamp it as octavo does, 1.22's wrap"},
    {"test_cast_FLOAT16_to_INT4",
     "-9 is out of range: undefined; ONNX 1.17's data clamp it as octavo does, 1.22's wrap"},
    {"test_cast_FLOAT_to_UINT4",
     "-9 is out of range: undefined; ONNX 1.17's data clamp it as octavo does, 1.22's wrap"},
    {"test_cast_FLOAT16_to_UINT4",
     "-9 is out of range: undefined; ONNX 1.17's data clamp it as octavo does, 1.22's wrap"},
};

bool Matches(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t i = star; i <= name.size(); ++i) {
    if (Matches(name.substr(i), rest)) return true;
  }
  return false;
}

const Exception* ExceptionFor(std::string_view name, bool of_122) {
  for (const Exception& e : kExceptions122) {
    if (of_122 && Matches(name, e.name)) return &e;
  }
  for (const Exception& e : kExceptions) {
    if (Matches(name, e.name)) return &e;
  }
  return nullptr;
}

// Empty: equal within ONNX's own tolerance of 1e-3 relative (and 1e-6 absolute); integers and strings exactly.
std::string Difference(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype()) {
    return std::string(quant::Name(got.dtype())) + " instead of " + std::string(quant::Name(want.dtype()));
  }
  if (got.shape() != want.shape()) return ToString(got.shape()) + " instead of " + ToString(want.shape());
  if (got.dtype() == DType::kString) return got.strings() == want.strings() ? "" : "strings differ";
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = got.GetDouble(i), b = want.GetDouble(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || (quant::IsFloat(got.dtype()) && std::fabs(a - b) <= 1e-6 + 1e-3 * std::fabs(b))) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(a) + " instead of " + std::to_string(b);
  }
  return "";
}

// The type names of the opaque nodes of a graph and its subgraphs.
void CollectOpaque(const Graph& g, std::string& names) {
  for (NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    if (n.op == Op::kOpaque && names.find(n.op_type) == std::string::npos)
      names += (names.empty() ? "" : ", ") + n.op_type;
    for (const auto& [key, value] : n.attrs.entries()) {
      if (const auto* sub = std::get_if<GraphRef>(&value)) CollectOpaque(**sub, names);
    }
  }
}

enum class Outcome { kPassed, kFailed, kUnknownOp, kRefused };
struct Verdict {
  Outcome outcome;
  std::string reason;
};

// NumPy has no bfloat16: the data files hold its bits as uint16.
void AsBFloat(DType declared, Tensor& t) {
  if (declared != DType::kBF16 || t.dtype() != DType::kU16) return;
  t = Tensor::View(DType::kBF16, t.shape(), t.buffer(), static_cast<size_t>(t.data() - t.buffer()->data()));
}

Verdict RunCase(const Graph& g, const fs::path& data) {
  TensorMap inputs;
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    const fs::path file = data / ("input_" + std::to_string(i) + ".pb");
    if (!fs::exists(file)) return {Outcome::kRefused, "input " + std::to_string(i) + " has no data"};
    auto t = onnx::ReadTensorFile(file);
    if (!t) return {Outcome::kRefused, t.error().message};
    inputs[g.value(g.inputs()[i]).name] = std::move(t->second);
  }
  for (ValueId v : g.inputs()) AsBFloat(g.value(v).type.dtype, inputs[g.value(v).name]);
  auto outputs = Interpret(g, inputs);
  if (!outputs) return {Outcome::kFailed, outputs.error().message};
  for (size_t i = 0; i < outputs->size(); ++i) {
    const Type& type = g.value(g.outputs()[i].value).type;  // element type and rank were compared by the run
    const Shape& shape = (*outputs)[i].shape();
    for (size_t d = 0; type.shape && d < shape.size(); ++d) {
      const Dim& dim = (*type.shape)[d];
      if (dim.is_number() && dim.number() != shape[d]) {
        return {Outcome::kFailed, std::format("inference says {}, the result is {}", ToString(type), ToString(shape))};
      }
    }
    auto want = onnx::ReadTensorFile(data / ("output_" + std::to_string(i) + ".pb"));
    if (!want) return {Outcome::kRefused, want.error().message};
    AsBFloat((*outputs)[i].dtype(), want->second);
    const std::string difference = Difference((*outputs)[i], want->second);
    if (!difference.empty()) return {Outcome::kFailed, "output " + std::to_string(i) + ": " + difference};
  }
  return outputs->empty() ? Verdict{Outcome::kRefused, "no outputs"} : Verdict{Outcome::kPassed, ""};
}

Verdict RunModel(const fs::path& folder, onnx::AttentionOrder order = onnx::AttentionOrder::kByProducer) {
  auto g = onnx::ReadFile(folder / "model.onnx", {.attention_order = order});
  if (!g) return {Outcome::kRefused, g.error().message};
  if (const auto types = Inference::Run(*g); !types) return {Outcome::kFailed, types.error().message};
  std::string opaque;
  CollectOpaque(*g, opaque);
  if (!opaque.empty()) return {Outcome::kUnknownOp, opaque};
  Verdict v{Outcome::kRefused, "no data"};
  for (int i = 0; fs::exists(folder / ("test_data_set_" + std::to_string(i))); ++i) {
    v = RunCase(*g, folder / ("test_data_set_" + std::to_string(i)));
    if (v.outcome != Outcome::kPassed) return v;
  }
  return v;
}

// One suite: a folder of models, and how many must pass.
struct Suite {
  const char* name;
  fs::path root;
  size_t least_passed;
  bool of_122 = false;
};
using Counts = std::map<Outcome, size_t>;

// Prints what does not pass, and expects an explanation for each of it. The counts by what stands in names between "test_"
// and the next "_".
std::map<std::string, Counts> RunSuite(const Suite& suite) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(suite.root)) {
    if (fs::exists(entry.path() / "model.onnx")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  Counts counts;
  std::map<std::string, Counts> by_op;
  std::map<std::string, size_t> unknown;
  std::string differing, refused;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename();
    const Verdict v = RunModel(folder);
    ++counts[v.outcome];
    ++by_op[name.substr(5, name.find('_', 5) - 5)][v.outcome];
    if (v.outcome == Outcome::kUnknownOp) ++unknown[v.reason];
    if (v.outcome != Outcome::kFailed && v.outcome != Outcome::kRefused) continue;
    const Exception* exception = ExceptionFor(name, suite.of_122);
    (v.outcome == Outcome::kFailed ? differing : refused) +=
        "  " + name + ": " + v.reason + (exception ? " [" + std::string(exception->reason) + "]" : "") + "\n";
    EXPECT_NE(exception, nullptr) << name << ": " << v.reason;
  }
  std::printf("%s: %zu models: %zu passed, %zu failed, %zu refused, %zu with ops that octavo does not know\n",
              suite.name, folders.size(), counts[Outcome::kPassed], counts[Outcome::kFailed], counts[Outcome::kRefused],
              counts[Outcome::kUnknownOp]);
  std::printf("failed:\n%srefused:\n%sunknown ops:\n ", differing.c_str(), refused.c_str());
  for (const auto& [op, n] : unknown) std::printf(" %s %zu;", op.c_str(), n);
  std::printf("\n");
  EXPECT_GE(counts[Outcome::kPassed], suite.least_passed);
  return by_op;
}

class OnnxTests : public ::testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(OnnxTests, GiveTheExpectedOutputs) {
  const auto [category, least_passed] = GetParam();
  const fs::path root = fs::path("/usr/share/libonnx-testdata/data") / category;
  if (!fs::exists(root)) GTEST_SKIP() << "libonnx-testdata is not installed";
  RunSuite({category, root, least_passed});
}

// The numbers are what passes with Debian 13's data; more is welcome.
INSTANTIATE_TEST_SUITE_P(Debian, OnnxTests,
                         ::testing::Values(std::pair<const char*, size_t>{"node", 950},
                                           std::pair<const char*, size_t>{"simple", 6}),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(Onnx122, GiveTheExpectedOutputs) {
  size_t passed_of_all = 0, all_cases = 0;
  const auto by_op = RunSuite({"ONNX 1.22", tests::Unpacked() / "onnx-1.22.0", 312, true});
  // What passes, of how many; the rest are element types that octavo does not have (and the four of kExceptions122).
  const std::map<std::string, std::pair<size_t, size_t>> expected = {
      {"attention", {128, 128}},
      {"cast", {26, 60}},
      {"dequantizelinear", {11, 14}},
      {"dynamicquantizelinear", {6, 6}},
      {"gelu", {8, 8}},
      {"layer", {57, 57}},
      {"matmulinteger", {1, 1}},
      {"qlinearmatmul", {8, 8}},
      {"quantizelinear", {10, 13}},
      {"rms", {38, 38}},
      {"rotary", {16, 16}},
      {"tensorscatter", {3, 3}},
  };
  for (const auto& [op, counts] : by_op) {
    size_t all = 0;
    for (const auto& [outcome, n] : counts) all += n;
    const size_t passed = counts.contains(Outcome::kPassed) ? counts.at(Outcome::kPassed) : 0;
    std::printf("  %-24s %3zu of %3zu\n", op.c_str(), passed, all);
    const std::pair<size_t, size_t> found(passed, all);
    passed_of_all += passed, all_cases += all;
    EXPECT_TRUE(expected.contains(op) && expected.at(op) == found) << op;
  }
  EXPECT_EQ(by_op.size(), expected.size());
  EXPECT_TRUE(
      tests::FamiliesSay(std::format("ONNX's own node tests of them: {} of {} pass", passed_of_all, all_cases)));
}

// The cases that ONNX 1.22 changed, as 1.20.1 had them: with the older meaning they pass, with the newer one they do not.
TEST(Onnx120, AttentionHadAnotherOrder) {
  size_t cases = 0, told_apart = 0;
  for (const auto& entry : fs::directory_iterator(tests::Unpacked() / "onnx-1.20.1")) {
    SCOPED_TRACE(entry.path().filename().string());
    ++cases;
    const Verdict old = RunModel(entry.path(), onnx::AttentionOrder::kOnnx118);
    EXPECT_EQ(old.outcome, Outcome::kPassed) << old.reason;
    told_apart += RunModel(entry.path(), onnx::AttentionOrder::kOnnx122).outcome == Outcome::kFailed ? 1 : 0;
  }
  EXPECT_EQ(cases, 9u);
  EXPECT_EQ(told_apart, cases);
}

}  // namespace
}  // namespace octavo::ir
