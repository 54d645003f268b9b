#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <format>
#include <optional>

#include "octavo/api/optimize.h"
#include "octavo/cli/cli.h"
#include "octavo/integrations/onnxruntime/session.h"
#include "octavo/ir/names.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string model, data, out;
  std::string with = "octavo", shard;
  bool resume = false, moments = false;
  std::vector<std::string> merge;
  int threads = 0;
};

void Summary(const quant::Calibration& c, const std::string& out) {
  std::printf("%s: %zu values, %llu samples\n", out.c_str(), c.values.size(),
              static_cast<unsigned long long>(c.samples));
}

int Merge(const Flags& flags) {
  if (!flags.model.empty() || !flags.data.empty() || !flags.shard.empty() || flags.moments || flags.resume)
    return Fail("--merge joins files that are there: leave out the model, --data, --shard, --moments and --resume"),
           kUsage;
  if (auto ok = quant::CheckEachOnce(flags.merge); !ok) return Fail("--merge: " + ok.error().message), kUsage;
  auto sum = quant::Calibration::Load(flags.merge[0]);
  if (!sum) return Fail(sum.error());
  for (size_t i = 1; i < flags.merge.size(); ++i) {
    auto next = quant::Calibration::Load(flags.merge[i]);
    if (!next) return Fail(next.error());
    if (auto ok = sum->Merge(*next); !ok) return Fail(flags.merge[i] + ": " + ok.error().message);
  }
  if (auto ok = sum->Save(flags.out); !ok) return Fail(ok.error());
  Summary(*sum, flags.out);
  return kOk;
}

// "2/8": the second of eight.
ir::Result<std::pair<int64_t, int64_t>> ShardFrom(const std::string& text) {
  int64_t index = 0, count = 0;
  int read = 0;
  if (std::sscanf(text.c_str(), "%4" SCNd64 "/%4" SCNd64 "%n", &index, &count, &read) != 2 ||
      static_cast<size_t>(read) != text.size() || index < 1 || index > count)
    return ir::Fail("--shard is I/N, from 1/N to N/N, not {}", ir::Quoted(text));
  return std::pair(index - 1, count);
}

int Run(const Flags& flags) {
  if (!flags.merge.empty()) return Merge(flags);
  if (flags.model.empty() || flags.data.empty())
    return Fail("calibrate needs a model and --data, or --merge with files"), kUsage;
  std::vector<NamedFile> read{{flags.model, "the model that is read"}, {flags.data, "the data"}};
  if (const auto files = CheckFiles(read, {{flags.out, "-o"}}); !files) return Fail(files.error());
  auto graph = ReadModel(flags.model, &read);
  if (!graph) return Fail(graph.error());
  if (const auto files = CheckFiles(read, {{flags.out, "-o"}}); !files) return Fail(files.error());
  auto data = OpenDataFor(*graph, flags.data);
  if (!data) return Fail(data.error());
  std::string part;
  if (!flags.shard.empty()) {
    const auto shard = ShardFrom(flags.shard);
    if (!shard) return Fail(shard.error()), kUsage;
    part = quant::ShardName(shard->first, shard->second);
    data = quant::ShardOf(std::move(*data), shard->first, shard->second);
  }
  std::optional<quant::Calibration> before;
  if (flags.resume && std::filesystem::exists(flags.out)) {
    auto loaded = quant::Calibration::Load(flags.out);
    if (!loaded) return Fail(loaded.error());
    if (auto ok = loaded->CheckShard(part); !ok)
      return Fail("cannot go on from " + ir::Quoted(flags.out) + ": " + ok.error().message);
    before = std::move(*loaded);
  }
  api::OptimizeOptions options;
  const auto registry = LoadedPasses();
  if (!registry) return Fail(registry.error());
  options.registry = *registry;
  options.threads = flags.threads;
  options.moments = flags.moments;
  options.other_runtime = integrations::onnxruntime::RuntimeNamed(flags.with);
  options.stop = &Interrupted();
  Progress progress(true);
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { progress.Show(stage, done, total); };
  auto task = api::PrepareCalibration(std::move(*graph), options);
  if (!task) return Fail(task.error());
  const Patience patience(10);
  auto calibration = api::RunCalibration(*task, **data, options, before ? &*before : nullptr);
  progress.Done();
  if (!calibration) {
    const int failed = Fail(calibration.error());
    return Interrupted() ? kInterrupted : failed;
  }
  calibration->shard = part;
  if (auto ok = calibration->Save(flags.out); !ok) return Fail(ok.error());
  Summary(*calibration, flags.out);
  if (Interrupted()) std::printf("interrupted: the file holds what was seen so far; --resume goes on from there\n");
  return Interrupted() ? kInterrupted : kOk;
}

}  // namespace

void AddCalibrate(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c =
      program.app.add_subcommand("calibrate", "gather ranges for optimize --calib FILE.calib; shards can be merged");
  c->add_option("model", flags->model, "ONNX model")->type_name("MODEL.onnx");
  c->add_option("--data", flags->data, "batches, as for optimize --calib");
  c->add_option("-o,--output", flags->out, "file to write")->required()->type_name("OUT.calib");
  c->add_option("--shard", flags->shard, "only this part of the batches, as 2/8 for the second of eight machines")
      ->type_name("I/N");
  c->add_flag("--moments", flags->moments,
              "also gather what weights are fitted to, so that optimize does that without the data; the file is "
              "larger: 7 bytes "
              "for each pair of channels of an activation");
  c->add_flag("--resume", flags->resume, "go on from OUT.calib, where an interrupt has left one");
  c->add_option("--merge", flags->merge, "instead: join calibrations of shards, in any order")
      ->type_name("A.calib B.calib ...");
  c->add_option("--with", flags->with, "what runs the model: octavo, onnxruntime, or the path of a libonnxruntime.so")
      ->type_name("RUNTIME")
      ->capture_default_str();
  c->add_option("--threads", flags->threads, "threads; 0: all")->check(CLI::Range(0, 1024));
  c->footer(
      "Example, on two machines and then on one:\n  octavo calibrate model.onnx --data batches/ --shard 1/2 -o "
      "a.calib\n"
      "  octavo calibrate model.onnx --data batches/ --shard 2/2 -o b.calib\n  octavo calibrate --merge a.calib "
      "b.calib "
      "-o all.calib");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
