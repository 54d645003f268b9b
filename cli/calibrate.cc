#include <cstdio>
#include <format>

#include "octavo/api/optimize.h"
#include "octavo/cli/cli.h"
#include "octavo/integrations/onnxruntime/session.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string model, data, out;
  std::string with = "octavo";
  std::vector<std::string> merge;
  int threads = 0;
};

void Summary(const quant::Calibration& c, const std::string& out) {
  std::printf("%s: %zu values, %llu samples\n", out.c_str(), c.values.size(),
              static_cast<unsigned long long>(c.samples));
}

int Merge(const Flags& flags) {
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
  api::OptimizeOptions options;
  const auto registry = LoadedPasses();
  if (!registry) return Fail(registry.error());
  options.registry = *registry;
  options.threads = flags.threads;
  options.other_runtime = integrations::onnxruntime::RuntimeNamed(flags.with);
  options.stop = &Interrupted();
  Progress progress(true);
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { progress.Show(stage, done, total); };
  auto task = api::PrepareCalibration(std::move(*graph), options);
  if (!task) return Fail(task.error());
  const Patience patience(10);
  auto calibration = api::RunCalibration(*task, **data, options);
  progress.Done();
  if (!calibration) return Fail(calibration.error());
  if (auto ok = calibration->Save(flags.out); !ok) return Fail(ok.error());
  Summary(*calibration, flags.out);
  if (Interrupted()) std::printf("interrupted: the file holds what was seen so far\n");
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
  c->add_option("--merge", flags->merge, "instead: join calibrations of shards, in any order")
      ->type_name("A.calib B.calib ...");
  c->add_option("--with", flags->with, "what runs the model: octavo, onnxruntime, or the path of a libonnxruntime.so")
      ->type_name("RUNTIME")
      ->capture_default_str();
  c->add_option("--threads", flags->threads, "threads; 0: all")->check(CLI::Range(0, 1024));
  c->footer(
      "Example:\n  octavo calibrate model.onnx --data shard0/ -o a.calib\n  octavo calibrate --merge a.calib b.calib "
      "-o all.calib");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
