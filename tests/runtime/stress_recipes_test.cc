// Every recipe, many threads on one Session.
#include <gtest/gtest.h>

#include <filesystem>

#include "octavo/api/optimize.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/quant/dataset.h"
#include "stress.h"

namespace octavo::runtime {
namespace {

using ir::Graph;
using ir::TensorMap;
using testing::kStressSeed;
using testing::Stress;
using testing::Subject;

// Random inputs for a graph; the seed is also that of the lengths.
std::vector<TensorMap> RandomInputs(const Graph& graph, int count) {
  const std::vector<quant::InputSpec> specs = quant::InputsOf(graph);
  std::vector<TensorMap> inputs;
  for (int i = 0; i < count; ++i) {
    quant::RandomOptions options{.limits = quant::IdLimits(graph), .seed = kStressSeed + static_cast<uint64_t>(i)};
    for (const quant::InputSpec& spec : specs) {
      if (spec.type.shape && !spec.type.shape->empty()) options.dims[spec.type.shape->front().symbol()] = i % 3 + 1;
    }
    options.dims.erase("");
    auto data = quant::RandomData(1, specs, options);
    EXPECT_TRUE(data) << data.error().message;
    auto batch = (*data)->Next();
    EXPECT_TRUE(batch && *batch);
    inputs.push_back((*batch)->inputs);
  }
  return inputs;
}

Subject Recipe(const std::string& file, const std::string& recipe) {
  auto graph = ir::onnx::ReadFile(std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data" / file);
  EXPECT_TRUE(graph) << graph.error().message;
  Subject s{std::filesystem::path(file).stem().string() + " " + recipe, {}, RandomInputs(*graph, 5)};
  const auto data = quant::InMemoryData({s.inputs[3]}, quant::InputsOf(*graph));
  api::OptimizeOptions options;
  options.recipe = recipe, options.fit = false, options.threads = 2, options.explain = false;
  if (recipe == "int8" || recipe == "fp8") options.data = data.get();
  auto optimized = api::Optimize(std::move(*graph), options);
  EXPECT_TRUE(optimized) << optimized.error().message;
  s.graph = std::move(optimized->graph);
  return s;
}

constexpr const char *kBert = "float/bert.ts17.sdpa.onnx", *kLlama = "models/llama_gqa.dyn23.sdpa.onnx";

TEST(Stress, EveryRecipe) {
  for (const char* recipe : {"float", "int8", "fp8", "dynamic", "weights4", "weights8"})
    Stress(Recipe(kBert, recipe), 1);
  Stress(Recipe(kLlama, "int8"), 1);
  Stress(Recipe("models/bert.ts17.sdpa.nncf.onnx", "quantized"), 1);
}

// Codes that all threads of a run read lay in the scratch memory of one of them, which ran tasks of other runs while it waited.
TEST(Stress, CodesThatThreadsShare) {
  Stress(Recipe(kBert, "dynamic4"), 3);
  Stress(Recipe(kLlama, "dynamic4"), 2);
  Stress(Recipe("models/sdpa_plain.ts17.ort-int4-nbits.onnx", "float"), 1);
  Stress(Recipe("vendor/nbits8_level4.onnx", "float"), 1);
}

}  // namespace
}  // namespace octavo::runtime
