#include <algorithm>
#include <chrono>
#include <cstdio>
#include <format>
#include <map>
#include <optional>

#include "octavo/api/open.h"
#include "octavo/cli/cli.h"
#include "octavo/ir/json.h"
#include "octavo/runtime/model.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::vector<std::string> models;
  std::string inputs;
  std::vector<int> threads;
  std::optional<double> seconds;
  bool kernels = false;
  bool as_is = false;
  bool json = false;
};

struct Sample {
  std::string model;
  int threads;
  runtime::Model compiled;
  ir::TensorMap inputs;
  std::vector<double> ms;
};

ir::Result<ir::TensorMap> InputsFor(const ir::Graph& graph, const std::string& path) {
  if (!path.empty()) return ReadInputs(graph, path);
  OCTAVO_TRY(auto data, OpenDataFor(graph, "random:1"));
  auto batch = data->Next();
  if (!batch) return std::unexpected(batch.error());
  return *batch ? std::move((*batch)->inputs) : ir::TensorMap();
}

double Quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
}

// Time per kernel kind of one profiled run: where the milliseconds are.
std::map<std::string, double> TimeByKernel(Sample& s) {
  runtime::Profile profile;
  std::map<std::string, double> by_kernel;
  if (!s.compiled.Run(s.inputs, &profile)) return by_kernel;
  for (const auto& e : profile.events) by_kernel[e.kernel] += e.duration_us / 1e3;
  return by_kernel;
}

// The models take turns, so that a noisy neighbour hits all of them alike.
ir::Status Measure(std::vector<Sample>& samples, double seconds) {
  for (Sample& s : samples) {
    for (int warm = 0; warm < 2; ++warm) OCTAVO_TRY_STATUS(s.compiled.Run(s.inputs).transform([](const auto&) {}));
  }
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  while (!Interrupted() && (elapsed() < seconds * static_cast<double>(samples.size()) || samples[0].ms.size() < 5)) {
    for (Sample& s : samples) {
      const auto begin = std::chrono::steady_clock::now();
      OCTAVO_TRY_STATUS(s.compiled.Run(s.inputs).transform([](const auto&) {}));
      s.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  return {};
}

void Print(std::vector<Sample>& samples, const Flags& flags) {
  nlohmann::ordered_json json = {
      {"schema", 1}, {"cpu", kernels::CpuDescription()}, {"results", nlohmann::ordered_json::array()}};
  std::vector<std::vector<std::string>> rows{{"model", "threads", "runs", "min ms", "median ms", "p90 ms", "ratio"}};
  const double base = samples[0].ms.empty() ? 0 : Quantile(samples[0].ms, 0.5);
  for (Sample& s : samples) {
    if (s.ms.empty()) continue;
    const double median = Quantile(s.ms, 0.5);
    rows.push_back({s.model, std::to_string(s.threads), std::to_string(s.ms.size()),
                    std::format("{:.3f}", Quantile(s.ms, 0)), std::format("{:.3f}", median),
                    std::format("{:.3f}", Quantile(s.ms, 0.9)), std::format("{:.2f}x", base / median)});
    nlohmann::ordered_json kernels;
    for (const auto& [kernel, ms] : TimeByKernel(s)) kernels[kernel] = ms;
    json["results"].push_back({{"model", s.model},
                               {"threads", s.threads},
                               {"runs", s.ms.size()},
                               {"min_ms", Quantile(s.ms, 0)},
                               {"median_ms", median},
                               {"p90_ms", Quantile(s.ms, 0.9)},
                               {"speedup", base / median},
                               {"kernels_ms", kernels}});
  }
  if (flags.json) {
    std::printf("%s\n", ir::Dump(json, 1).c_str());
    return;
  }
  std::printf("%s\n%s", kernels::CpuDescription().c_str(), Table(rows, {1, 2, 3, 4, 5, 6}).c_str());
  for (const auto& result : json["results"]) {
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [kernel, ms] : result["kernels_ms"].items()) sorted.push_back({ms.get<double>(), kernel});
    std::sort(sorted.rbegin(), sorted.rend());
    std::printf("\n%s, %d threads, ms by kernel:\n", result["model"].get<std::string>().c_str(),
                result["threads"].get<int>());
    for (size_t i = 0; i < sorted.size() && i < 8; ++i)
      std::printf("  %9.3f  %s\n", sorted[i].first, sorted[i].second.c_str());
  }
}

int Run(const Flags& flags) {
  if (flags.kernels)
    return BenchKernels(flags.seconds.value_or(1), flags.threads.empty() ? 2 : flags.threads[0], flags.json);
  if (flags.models.empty()) return Fail("bench needs a model, or --kernels"), kUsage;
  std::vector<Sample> samples;
  for (const std::string& path : flags.models) {
    auto graph = ReadModel(path);
    if (!graph) return Fail(graph.error());
    auto inputs = InputsFor(*graph, flags.inputs);
    if (!inputs) return Fail(inputs.error());
    const api::Opened opened = flags.as_is ? api::Opened{std::move(*graph), {}} : api::FuseToRun(std::move(*graph));
    Note(opened.note);
    for (int threads : flags.threads.empty() ? std::vector<int>{0} : flags.threads) {
      auto model = runtime::Model::Compile(opened.graph,
                                           {.threads = threads, .interrupted = [] { return Interrupted().load(); }});
      if (!model) return Fail(model.error());
      samples.push_back({path, model->threads(), std::move(*model), *inputs, {}});
    }
  }
  const Patience patience(5);
  if (auto ok = Measure(samples, flags.seconds.value_or(3)); !ok && !Interrupted()) return Fail(ok.error());
  Print(samples, flags);
  return Interrupted() ? kInterrupted : kOk;
}

}  // namespace

void AddBench(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("bench", "time models against each other, taking turns");
  c->add_option("model", flags->models, "ONNX models; ratios are against the first")->type_name("MODEL.onnx");
  c->add_option("--inputs,--input", flags->inputs, "a batch; without it a random one")->type_name("X.npz");
  c->add_option("--threads", flags->threads,
                "thread counts to try, e.g. 1,2; 0: all. With --kernels: against one thread, 2 unless given")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024));
  c->add_option("--seconds", flags->seconds, "per model and thread count, 3 unless given; with --kernels per row, 1")
      ->check(CLI::PositiveNumber);
  c->add_flag("--as-is", flags->as_is, "do not fuse the graphs before they run");
  c->add_flag("--kernels", flags->kernels,
              "no model: the kernel pair on this CPU against its measured peak and oneDNN");
  c->add_flag("--json", flags->json, "for programs");
  c->footer(
      "Example:\n  octavo bench model.onnx model.int8.onnx --inputs batch.npz --threads 1,2\n  octavo bench --kernels");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
