#include "octavo/api/measured.h"

#include <chrono>
#include <utility>

#include "octavo/api/bench.h"
#include "octavo/api/open.h"
#include "octavo/ir/closed.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

using ir::Result;
using ir::Status;

namespace {

struct Running {
  runtime::Model model;
  std::vector<double> ms;
};

Status RunOnce(Running& one, const ir::TensorMap& inputs) {
  const auto begin = std::chrono::steady_clock::now();
  OCTAVO_TRY_STATUS(one.model.Run(inputs).transform([](const auto&) {}));
  one.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  return {};
}

// One after the other as in one run, each as long as in the median of some: other work on the machine makes a step of 0.3 ms last 40.
Result<std::vector<runtime::ProfileEvent>> StepsOf(const runtime::Model& model, const ir::TensorMap& inputs) {
  std::vector<runtime::Profile> runs(5);
  for (runtime::Profile& run : runs) OCTAVO_TRY_STATUS(model.Run(inputs, &run).transform([](const auto&) {}));
  std::vector<runtime::ProfileEvent> steps = std::move(runs[0].events);
  double end = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<double> us{steps[i].duration_us};
    for (size_t r = 1; r < runs.size(); ++r) {
      if (i < runs[r].events.size()) us.push_back(runs[r].events[i].duration_us);
    }
    steps[i].start_us = end, steps[i].duration_us = Quantile(us, 0.5);
    end += steps[i].duration_us;
  }
  return steps;
}

Result<Measured::Side> Told(const Running& one, const ir::TensorMap& inputs) {
  OCTAVO_TRY(std::vector<runtime::ProfileEvent> steps, StepsOf(one.model, inputs));
  return Measured::Side{.ms = Quantile(one.ms, 0.5),
                        .low = Quantile(one.ms, 0.1),
                        .high = Quantile(one.ms, 0.9),
                        .runs = static_cast<int64_t>(one.ms.size()),
                        .peak_bytes = 0,
                        .steps = std::move(steps)};
}

}  // namespace

Result<Measured> Measure(ir::Graph before, ir::Graph after, const ir::TensorMap& inputs, bool random,
                         const MeasureOptions& options) {
  return ir::Closed("measuring", [&]() -> Result<Measured> {
    const runtime::CompileOptions compile{.threads = options.threads, .interrupted = options.interrupted};
    OCTAVO_TRY(runtime::Model float_model, runtime::Model::Compile(FuseToRun(std::move(before)).graph, compile));
    OCTAVO_TRY(runtime::Model made, runtime::Model::Compile(std::move(after), compile));
    Running first{std::move(float_model), {}}, second{std::move(made), {}};
    constexpr int64_t kFewest = 3;
    double spent = 0;
    for (int64_t round = -1; round < kFewest || spent < 2e3 * options.seconds; ++round) {
      OCTAVO_TRY_STATUS(RunOnce(first, inputs));
      OCTAVO_TRY_STATUS(RunOnce(second, inputs));
      spent += first.ms.back() + second.ms.back();
      if (round < 0) first.ms.clear(), second.ms.clear(), spent = 0;  // which prepared what depends on shapes
    }
    Measured measured{.before = {},
                      .after = {},
                      .shapes = ShapesOf(inputs),
                      .samples = RowsOf(inputs),
                      .threads = second.model.threads(),
                      .random = random};
    OCTAVO_TRY(measured.before, Told(first, inputs));
    OCTAVO_TRY(measured.after, Told(second, inputs));
    return measured;
  });
}

nlohmann::ordered_json ToJson(const Measured& measured) {
  const auto side = [](const Measured::Side& s) {
    nlohmann::ordered_json j = {{"median_ms", s.ms}, {"p10_ms", s.low}, {"p90_ms", s.high}, {"runs", s.runs}};
    if (s.peak_bytes > 0) j["peak_bytes"] = s.peak_bytes;
    auto steps = nlohmann::ordered_json::array();
    for (const runtime::ProfileEvent& e : s.steps)
      steps.push_back({{"node", e.name}, {"kernel", e.kernel}, {"ms", e.duration_us / 1e3}});
    j["steps"] = std::move(steps);
    return j;
  };
  return {{"threads", measured.threads},     {"shapes", measured.shapes},
          {"random", measured.random},       {"speedup", measured.before.ms / measured.after.ms},
          {"before", side(measured.before)}, {"after", side(measured.after)}};
}

}  // namespace octavo::api
