// How many steps a decoder layer takes: from behind one attention core to the next one. The goal is seven (norm, QKV with rotary embedding and
// append, attention, projection with residual, norm, gate and up, down with residual); docs/lab/runtime.md says what stands between.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "octavo/api/optimize.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/runtime/model.h"
#include "octavo/tests/unpacked.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

struct Layer {
  const char* file;
  const char* recipe;
  size_t steps;
};

// The kernels of the steps between the first two attention cores, the second included.
std::vector<std::string> StepsOf(const Layer& layer) {
  const fs::path file = tests::Unpacked() / "zoo" / (std::string(layer.file) + ".onnx");
  auto graph = ir::onnx::ReadFile(file.string());
  EXPECT_TRUE(graph.has_value()) << layer.file;
  if (!graph) return {};
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz").string());
  ir::TensorMap inputs;
  for (const ir::ValueId v : graph->inputs()) {
    const std::string& name = graph->value(v).name;
    if (arrays && arrays->contains("0/in/" + name)) inputs[name] = arrays->at("0/in/" + name);
  }
  const auto data = quant::InMemoryData({inputs}, quant::InputsOf(*graph));
  api::OptimizeOptions options;
  options.recipe = layer.recipe, options.threads = 1;
  if (options.recipe == "int8") options.data = data.get();
  auto result = api::Optimize(std::move(*graph), options);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  if (!result) return {};
  auto model = runtime::Model::Compile(std::move(result->graph), {.threads = 1});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  if (!model) return {};
  std::vector<std::string> steps;
  int cores = 0;
  for (const std::string& kernel : model->KernelOfEachStep()) {
    if (cores == 1) steps.push_back(kernel);
    if (kernel.starts_with("sdpa") && ++cores == 2) return steps;
  }
  ADD_FAILURE() << layer.file << " has " << cores << " attention cores in " << layer.recipe;
  return {};
}

TEST(LayerSteps, AreAsFewAsTheyWere) {
  const bool print = std::getenv("OCTAVO_PRINT_STEPS") != nullptr;
  for (const Layer& layer : {
           Layer{"extra/llama_kv2_past.dyn18.sdpa", "dynamic4", 7},
           {"extra/llama_kv2_past.dyn18.sdpa", "dynamic", 7},
           {"extra/llama_kv2_past.dyn18.sdpa", "int8", 7},
           {"float/llama_past.ts17.sdpa", "dynamic4", 7},
           {"float/qwen2.dyn18.sdpa", "dynamic4", 7},
           {"float/qwen2.dyn18.sdpa", "int8", 7},
           {"float/gemma2.dyn18.eager", "dynamic4", 7},
           {"float/gemma2.dyn18.eager", "int8", 7},
           {"float/phi.dyn18.sdpa", "dynamic4", 5},
           {"float/phi.dyn18.sdpa", "dynamic", 7},
           {"float/phi.dyn18.sdpa", "int8", 6},
           {"float/gpt2_past.dyn18.sdpa", "dynamic4", 7},
           {"float/gpt2_past.dyn18.sdpa", "dynamic", 7},
           {"float/gpt2_past.dyn18.sdpa", "int8", 7},
       }) {
    const std::vector<std::string> steps = StepsOf(layer);
    std::string all;
    for (const std::string& kernel : steps) all += "\n  " + kernel;
    EXPECT_EQ(steps.size(), layer.steps) << layer.file << " " << layer.recipe << all;
    if (print) std::printf("%s %s: %zu%s\n", layer.file, layer.recipe, steps.size(), all.c_str());
  }
}

}  // namespace
}  // namespace octavo
