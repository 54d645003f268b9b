// The `_expanded` twins of ONNX 1.22's Attention node tests: what the op means, in standard ops, as a fusion target that somebody
// else wrote. Float fusion must keep every output, and find the attention again, also where the scores are an output as well.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/tensor_file.h"
#include "octavo/tests/unpacked.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

ir::Result<ir::TensorMap> Inputs(const ir::Graph& g, const fs::path& data) {
  ir::TensorMap inputs;
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    OCTAVO_TRY(auto t, ir::onnx::ReadTensorFile(data / std::format("input_{}.pb", i)));
    inputs[g.value(g.inputs()[i]).name] = std::move(t.second);
  }
  return inputs;
}

// Largest difference to output_I.pb; ONNX's own tolerance is 1e-3 relative, f16 has steps of 1e-3.
double Worst(const std::vector<ir::Tensor>& outputs, const fs::path& data) {
  double worst = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto want = ir::onnx::ReadTensorFile(data / std::format("output_{}.pb", i));
    if (!want || want->second.shape() != outputs[i].shape()) return INFINITY;
    for (int64_t j = 0; j < outputs[i].size(); ++j) {
      const double a = outputs[i].GetDouble(j), b = want->second.GetDouble(j);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      worst = std::max(worst, std::fabs(a - b) / (1 + std::fabs(b)));
    }
  }
  return worst;
}

TEST(Twins, AttentionIsFoundAgain) {
  int twins = 0, fused = 0, scores_wanted = 0;
  for (const auto& entry : fs::directory_iterator(tests::Unpacked() / "onnx-1.22.0")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("test_attention") || name.find("_expanded") == std::string::npos) continue;
    SCOPED_TRACE(name);
    ++twins;
    auto g = ir::onnx::ReadFile(entry.path() / "model.onnx");
    ASSERT_TRUE(g) << g.error().message;
    const bool scores = name.find("qk_matmul") != std::string::npos;
    api::OptimizeOptions options;
    options.recipe = "float";
    auto optimized = api::Optimize(*g, options);
    ASSERT_TRUE(optimized) << optimized.error().message;
    const fs::path data = entry.path() / "test_data_set_0";
    auto inputs = Inputs(*g, data);
    ASSERT_TRUE(inputs) << inputs.error().message;
    auto outputs = ir::Interpret(optimized->graph, *inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_LT(Worst(*outputs, data), 2e-3);
    EXPECT_EQ(optimized->report.attention.found, 1);
    scores_wanted += scores ? 1 : 0;
    if (optimized->report.attention.done == 1) {
      ++fused;
      continue;
    }
    for (const passes::Candidate& c : optimized->report.candidates) {
      if (c.kind != "attention") continue;
      EXPECT_NE(c.reason, "");
      std::printf("  %-60s %s\n", name.c_str(), c.reason.c_str());
    }
  }
  std::printf("%d twins: %d fused; of %d the scores or probabilities are an output as well\n", twins, fused,
              scores_wanted);
  EXPECT_EQ(twins, 64);
  EXPECT_EQ(fused, twins);
}

}  // namespace
}  // namespace octavo
