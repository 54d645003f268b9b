#include "stress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "octavo/runtime/model.h"

namespace octavo::runtime::testing {

using ir::Graph;
using ir::Tensor;
using ir::TensorMap;

namespace {

constexpr int kThreads = 16;

int RunsOfThread() {
  const char* runs = std::getenv("OCTAVO_STRESS_RUNS");
  return runs == nullptr ? 0 : std::atoi(runs);
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

}  // namespace

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
      Work(
          s, want, slot, static_cast<uint32_t>(kStressSeed) + static_cast<uint32_t>(t),
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

}  // namespace octavo::runtime::testing
