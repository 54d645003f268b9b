// The zoo through the reader and the interpreter, against the outputs of the frameworks that made it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/unpacked.h"

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

// Relative to the largest expected magnitude, so that one number serves all graphs; NaN and infinities must agree.
double Distance(const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape()) return INFINITY;
  double top = 1e-30, worst = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double b = want.GetDouble(i);
    if (std::isfinite(b)) top = std::max(top, std::fabs(b));
  }
  for (int64_t i = 0; i < want.size(); ++i) {
    const double a = got.GetDouble(i), b = want.GetDouble(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    worst = std::max(worst, std::isfinite(a - b) ? std::fabs(a - b) / top : INFINITY);
  }
  return worst;
}

struct Verdict {
  std::string refused;  // a sentence, or empty
  double distance = 0;
  int cases = 0;
};

Verdict RunModel(const fs::path& path) {
  Verdict v;
  auto g = onnx::ReadFile(path);
  if (!g) return {g.error().message};
  for (NodeId id : g->NodesInOrder()) {
    const Node& n = g->node(id);
    if (n.op == Op::kOpaque) return {"unknown op " + n.domain + "." + n.op_type};
  }
  fs::path data = path;
  auto arrays = ReadNpz(data.replace_extension(".npz"));
  if (!arrays) return {arrays.error().message};
  for (int c = 0;; ++c) {
    const std::string in = std::to_string(c) + "/in/", out = std::to_string(c) + "/out/";
    TensorMap inputs;
    for (ValueId id : g->inputs()) {
      const std::string& name = g->value(id).name;
      if (const auto it = arrays->find(in + name); it != arrays->end()) inputs[name] = it->second;
    }
    if (inputs.empty()) break;
    auto outputs = Interpret(*g, inputs);
    if (!outputs) return {outputs.error().message};
    for (size_t i = 0; i < outputs->size(); ++i) {
      const auto want = arrays->find(out + g->outputs()[i].name);
      if (want == arrays->end()) continue;
      v.distance = std::max(v.distance, Distance((*outputs)[i], want->second));
      ++v.cases;
    }
  }
  if (v.cases == 0) v.refused = "the data has no outputs";
  return v;
}

struct Tally {
  size_t all = 0, good = 0, known = 0;
};

// Graphs without unknown ops must give the expected outputs; `tolerance` is relative to the largest value.
void RunFolder(const fs::path& root, double tolerance, Tally& tally) {
  std::vector<fs::path> models;
  for (const auto& e : fs::directory_iterator(root)) {
    if (e.path().extension() == ".onnx") models.push_back(e.path());
  }
  std::sort(models.begin(), models.end());
  std::map<std::string, size_t> refusals;
  Tally here;
  for (const fs::path& m : models) {
    const Verdict v = RunModel(m);
    ++here.all;
    if (!v.refused.empty()) {
      ++refusals[v.refused];
      EXPECT_TRUE(v.refused.starts_with("unknown op")) << m.filename() << ": " << v.refused;
      continue;
    }
    ++here.known;
    here.good += v.distance <= tolerance;
    EXPECT_LE(v.distance, tolerance) << m.filename();
  }
  std::printf("%-10s %3zu graphs, %3zu of known ops, %3zu give the expected outputs within %g\n",
              root.filename().c_str(), here.all, here.known, here.good, tolerance);
  for (const auto& [reason, n] : refusals) std::printf("  %3zu refused: %s\n", n, reason.c_str());
  tally.all += here.all;
  tally.good += here.good;
}

TEST(Zoo, GivesTheExpectedOutputs) {
  const fs::path root = tests::Unpacked() / "zoo";
  Tally tally;
  // float32 sums in another order; in the quantized ones a value may in addition be rounded to the next integer.
  RunFolder(root / "float", 2e-3, tally);
  RunFolder(root / "quantized", 0.1, tally);
  RunFolder(root / "extra", 2e-3, tally);
  std::printf("%zu of %zu graphs\n", tally.good, tally.all);
  EXPECT_EQ(tally.all, 412u);
  EXPECT_EQ(tally.good, tally.all);
}

}  // namespace
}  // namespace octavo::ir
