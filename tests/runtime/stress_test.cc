// Many threads on one Session, over every recipe and every family of kernels, with shapes that change and Sessions that are replaced
// under way: the bits of one thread alone. OCTAVO_STRESS_RUNS=10000: so many runs a thread for each subject, instead of about 20 s in all.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "families.h"
#include "octavo/api/optimize.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/quant/dataset.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::Graph;
using ir::Tensor;
using ir::TensorMap;
using testing::Families;
using testing::Family;
using testing::Maker;

constexpr int kThreads = 16;
constexpr uint64_t kSeed = 20261124;

int RunsOfThread() {
  const char* runs = std::getenv("OCTAVO_STRESS_RUNS");
  return runs == nullptr ? 0 : std::atoi(runs);
}

struct Subject {
  std::string name;
  Graph graph;
  std::vector<TensorMap> inputs;  // of different shapes
};

Subject AllFamilies() {
  Maker maker(7);
  for (const Family& family : Families()) maker.family = family.name, family.add(maker);
  std::mt19937 gen(kSeed);
  Subject s{"families", maker.graph, {}};
  const testing::Sizes sizes[] = {{1, 1, 7},   {1, 5, 5},   {2, 3, 33},   {1, 17, 40},
                                  {3, 9, 130}, {1, 64, 64}, {1, 2, 2500}, {2, 96, 96}};
  for (const testing::Sizes& size : sizes) s.inputs.push_back(maker.Inputs(size, gen));
  return s;
}

// Random inputs for a graph; the seed is also that of the lengths.
std::vector<TensorMap> RandomInputs(const Graph& graph, int count) {
  const std::vector<quant::InputSpec> specs = quant::InputsOf(graph);
  std::vector<TensorMap> inputs;
  for (int i = 0; i < count; ++i) {
    quant::RandomOptions options{.limits = quant::IdLimits(graph), .seed = kSeed + static_cast<uint64_t>(i)};
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

// The Session that threads take for each run; who has it keeps it, whatever is put in its place.
class Slot {
 public:
  std::shared_ptr<const Model> Get() const {
    const std::scoped_lock lock(mutex_);
    return model_;
  }
  void Put(std::shared_ptr<const Model> model) {
    const std::scoped_lock lock(mutex_);
    model_.swap(model);  // what was there ends with the last run on it
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Model> model_;
};

std::shared_ptr<const Model> Open(const Graph& graph) {
  auto model = Model::Compile(graph, {.threads = 2});
  EXPECT_TRUE(model) << model.error().message;
  return std::make_shared<const Model>(std::move(*model));
}

// Copies that the run alone holds, as when caches are donated.
TensorMap Own(const TensorMap& inputs) {
  TensorMap own;
  for (const auto& [name, t] : inputs) {
    Tensor copy = Tensor::Empty(t.dtype(), t.shape());
    if (t.byte_size() > 0) std::memcpy(copy.mutable_data(), t.data(), t.byte_size());
    own[name] = std::move(copy);
  }
  return own;
}

std::string Compare(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (!got[i].SameBits(want[i])) return "output " + std::to_string(i) + " has other bits";
  }
  return {};
}

struct Outcome {
  std::atomic<int64_t> runs = 0, wrong = 0;
  std::mutex mutex;
  std::string first;  // what was wrong

  void Wrong(const std::string& what) {
    const std::scoped_lock lock(mutex);
    if (wrong++ == 0) first = what;
  }
};

void Work(const Subject& s, const std::vector<std::vector<Tensor>>& want, const Slot& slot, uint32_t seed,
          const std::function<bool(int)>& more, Outcome& outcome) {
  std::mt19937 gen(seed);
  for (int run = 0; more(run); ++run) {
    const size_t i = gen() % s.inputs.size();
    const std::shared_ptr<const Model> model = slot.Get();
    const auto got = model->Run(gen() % 2 == 0 ? s.inputs[i] : Own(s.inputs[i]));
    ++outcome.runs;
    const std::string problem = got ? Compare(*got, want[i]) : got.error().message;
    if (!problem.empty()) outcome.Wrong("inputs " + std::to_string(i) + ": " + problem);
  }
}

void Stress(const Subject& s, double seconds) {
  std::vector<std::vector<Tensor>> want;
  const auto alone = Model::Compile(s.graph, {.threads = 1});
  ASSERT_TRUE(alone) << alone.error().message;
  for (const TensorMap& inputs : s.inputs) {
    auto outputs = alone->Run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    want.push_back(std::move(*outputs));
  }
  Slot slot;
  slot.Put(Open(s.graph));
  Outcome outcome;
  const int runs = RunsOfThread();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto in_time = [&] { return std::chrono::steady_clock::now() < end; };
  std::atomic<int> working = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Work(s, want, slot, static_cast<uint32_t>(kSeed) + static_cast<uint32_t>(t),
           [&](int run) { return runs > 0 ? run < runs : run < 3 || in_time(); }, outcome);
      --working;
    });
  }
  int sessions = 1;
  while (working > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(runs > 0 ? 2000 : 300));
    if (working > 0) slot.Put(Open(s.graph)), ++sessions;
  }
  for (std::thread& t : threads) t.join();
  std::printf("%-40s %6lld runs, %d sessions, %lld wrong\n", s.name.c_str(), static_cast<long long>(outcome.runs),
              sessions, static_cast<long long>(outcome.wrong));
  EXPECT_EQ(outcome.wrong, 0) << outcome.first;
}

constexpr const char *kBert = "float/bert.ts17.sdpa.onnx", *kLlama = "models/llama_gqa.dyn23.sdpa.onnx";

TEST(Stress, EveryFamilyOfKernels) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Stress(AllFamilies(), 4);
}

TEST(Stress, EveryRecipe) {
  for (const char* recipe : {"float", "int8", "fp8", "dynamic", "weights4", "weights8"}) Stress(Recipe(kBert, recipe), 1);
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
