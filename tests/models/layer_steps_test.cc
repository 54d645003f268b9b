// How many steps a decoder layer takes: from behind one attention core to the next one. The goal is seven (norm, QKV with rotary embedding and
// append, attention, projection with residual, norm, gate and up, down with residual); docs/lab/runtime.md says what stands between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
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

struct Ready {
  passes::Report report;
  std::optional<runtime::Model> model;
  ir::TensorMap inputs;
};

Ready Compiled(const Layer& layer) {
  const std::string name = std::string(layer.file) + ".onnx";
  fs::path file = tests::Unpacked() / "zoo" / name;
  if (!fs::exists(file)) file = fs::path(OCTAVO_SOURCE_DIR) / "tests/data" / name;
  auto graph = ir::onnx::ReadFile(file.string());
  EXPECT_TRUE(graph.has_value()) << layer.file;
  if (!graph) return {};
  Ready ready;
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz").string());
  for (const ir::ValueId v : graph->inputs()) {
    const std::string& name = graph->value(v).name;
    if (arrays && arrays->contains("0/in/" + name)) ready.inputs[name] = arrays->at("0/in/" + name);
  }
  const auto data = quant::InMemoryData({ready.inputs}, quant::InputsOf(*graph));
  api::OptimizeOptions options;
  options.recipe = layer.recipe, options.threads = 1;
  if (options.recipe == "int8") options.data = data.get();
  auto result = api::Optimize(std::move(*graph), options);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  if (!result) return {};
  ready.report = std::move(result->report);
  auto model = runtime::Model::Compile(std::move(result->graph), {.threads = 1});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  if (model) ready.model = std::move(*model);
  return ready;
}

// The kernels of the steps between the first two attention cores, the second included.
std::vector<std::string> StepsOf(const Layer& layer) {
  const Ready ready = Compiled(layer);
  if (!ready.model) return {};
  std::vector<std::string> steps;
  int cores = 0;
  for (const std::string& kernel : ready.model->KernelOfEachStep()) {
    if (cores == 1) steps.push_back(kernel);
    if (kernel.starts_with("sdpa") && ++cores == 2) return steps;
  }
  ADD_FAILURE() << layer.file << " has " << cores << " attention cores in " << layer.recipe;
  return {};
}

// What the report calls one step of several products runs so.
TEST(LayerSteps, AreToldByTheReport) {
  for (const Layer& layer : {Layer{"extra/llama_kv2_past.dyn18.sdpa", "dynamic", 2},
                             {"extra/llama_kv2_past.dyn18.sdpa", "dynamic4", 4},
                             {"extra/llama_kv2_past.dyn18.sdpa", "weights4", 4},
                             {"extra/llama_kv2_past.dyn18.sdpa", "weights8", 4},
                             {"extra/b_decoy_linear.dyn18", "dynamic", 1},
                             {"float/bert.dyn18.sdpa", "weights4", 2}}) {
    const Ready ready = Compiled(layer);
    ASSERT_TRUE(ready.model);
    runtime::Profile profile;
    ASSERT_TRUE(ready.model->Run(ready.inputs, &profile).has_value());
    EXPECT_EQ(ready.report.qkv.done, ready.report.qkv.found) << layer.file << " " << layer.recipe;
    size_t told = 0;
    for (const passes::Candidate& c : ready.report.candidates) {
      if (c.rule != "one_step") continue;
      ++told;
      const auto has_all = [&](const runtime::ProfileEvent& e) {
        return std::ranges::all_of(c.nodes, [&](const std::string& n) { return std::ranges::contains(e.origin, n); });
      };
      EXPECT_TRUE(std::ranges::any_of(profile.events, has_all)) << layer.file << " " << layer.recipe << c.nodes[0];
    }
    EXPECT_EQ(told, layer.steps) << layer.file << " " << layer.recipe;
  }
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
           {"extra/qwen3_kv2.dyn18.eager", "dynamic4", 7},
           {"extra/qwen3_kv2.dyn18.eager", "dynamic", 7},
           {"extra/qwen3_kv2.dyn18.eager", "int8", 7},
           {"float/gemma3.dyn18", "dynamic4", 7},
           {"float/gemma3.dyn18", "dynamic", 7},
           {"float/gemma3.dyn18", "int8", 7},
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
