#include "octavo/api/bench.h"

#include <algorithm>
#include <cstdio>
#include <format>
#include <optional>

#include "octavo/api/open.h"
#include "octavo/api/version_text.h"
#include "octavo/cli/cli.h"
#include "octavo/ir/names.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/packed_file.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::vector<std::string> models;
  std::string inputs, format;
  std::vector<std::string> shapes;
  std::vector<int> threads;
  std::optional<double> seconds;
  bool kernels = false;
  bool as_is = false;
  bool json = false;
  PackedFlags packed;
};

// The batches that each model is timed with: the file's, or random ones of the shapes asked for.
ir::Result<std::vector<ir::TensorMap>> InputsFor(const ir::Graph& graph, const Flags& flags) {
  std::vector<ir::TensorMap> batches;
  if (!flags.inputs.empty()) {
    OCTAVO_TRY(batches.emplace_back(), ReadInputs(graph, flags.inputs));
    return batches;
  }
  OCTAVO_TRY(const std::vector<api::Shapes> shapes, api::ParseShapes(flags.shapes));
  for (const api::Shapes& one : shapes) {
    OCTAVO_TRY(batches.emplace_back(), api::RandomInputs(graph, one));
  }
  return batches;
}

using Rows = std::vector<std::vector<std::string>>;

// Markdown or comma separated.
std::string Separated(const Rows& rows, bool markdown) {
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line = markdown ? "|" : "";
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string cell = ir::Clean(rows[r][i], rows[r][i].size());
      const bool quoted = !markdown && cell.find_first_of(",\"") != std::string::npos;
      line += markdown ? " " + cell + " |"
                       : std::format("{}{}{}{}", i == 0 ? "" : ",", quoted ? "\"" : "", cell, quoted ? "\"" : "");
    }
    text += line + "\n";
    if (markdown && r == 0) {
      text += "|";
      for (size_t i = 0; i < rows[r].size(); ++i) text += i < 2 ? "---|" : "---:|";
      text += "\n";
    }
  }
  return text;
}

Rows RowsOf(const std::vector<api::Timing>& timings) {
  Rows rows{{"model", "shapes", "threads", "runs", "min ms", "p50 ms", "p90 ms", "p99 ms", "samples/s", "ratio"}};
  const double base = api::Quantile(timings[0].ms, 0.5);
  for (const api::Timing& t : timings) {
    if (t.ms.empty()) continue;
    const double median = api::Quantile(t.ms, 0.5);
    rows.push_back({t.model, api::ShapesOf(t.inputs), std::to_string(t.threads), std::to_string(t.ms.size())});
    for (const double q : {0.0, 0.5, 0.9, 0.99}) rows.back().push_back(std::format("{:.3f}", api::Quantile(t.ms, q)));
    rows.back().push_back(std::format("{:.1f}", 1e3 * static_cast<double>(api::RowsOf(t.inputs)) / median));
    rows.back().push_back(std::format("{:.2f}x", base / median));
  }
  return rows;
}

void Print(const std::vector<api::Timing>& timings, const Flags& flags) {
  if (flags.json || flags.format == "json") {
    std::printf("%s\n", ir::Dump(api::ToJson(timings), 1).c_str());
    return;
  }
  Rows rows = RowsOf(timings);
  if (!flags.format.empty()) {
    std::fputs(Separated(rows, flags.format == "md").c_str(), stdout);
    return;
  }
  // The shapes are a line above the table: they would fill it.
  std::string shapes;
  std::vector<std::string> kinds;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string& cell = rows[r][1];
    if (r == 0) continue;
    const auto at = std::ranges::find(kinds, cell);
    const std::string nth = std::to_string(at - kinds.begin() + 1);
    if (at == kinds.end()) kinds.push_back(cell);
    cell = nth;
  }
  const bool several = kinds.size() > 1;
  for (size_t i = 0; i < kinds.size(); ++i)
    shapes += Paragraph(std::format("shapes{}: {}", several ? std::format(" {}", i + 1) : "", kinds[i]), 2) + "\n";
  // Without a column of shapes, or, so that 80 columns are enough, that of the least time.
  for (auto& row : rows) row.erase(row.begin() + (several ? 4 : 1));
  std::printf("%s\n%s%s", kernels::CpuDescription().c_str(), shapes.c_str(),
              Table(rows, {1, 2, 3, 4, 5, 6, 7, 8}).c_str());
  for (const api::Timing& t : timings) {
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [kernel, ms] : t.ms_by_kernel) sorted.emplace_back(ms, kernel);
    std::ranges::sort(sorted, std::greater());
    const size_t nth = static_cast<size_t>(std::ranges::find(kinds, api::ShapesOf(t.inputs)) - kinds.begin()) + 1;
    std::printf("\n%s, %s%d thread%s, ms by kernel:\n", t.model.c_str(),
                several ? std::format("shapes {}, ", nth).c_str() : "", t.threads, t.threads == 1 ? "" : "s");
    for (size_t i = 0; i < sorted.size() && i < 8; ++i)
      std::printf("  %9.3f  %s\n", sorted[i].first, sorted[i].second.c_str());
  }
}

int Run(const Flags& flags) {
  if (flags.kernels)
    return BenchKernels(flags.seconds.value_or(1), flags.threads.empty() ? 2 : flags.threads[0], flags.json);
  if (flags.models.empty()) return Fail("bench needs a model, or --kernels"), kUsage;
  if (!flags.packed.file.empty() && flags.models.size() > 1)
    return Fail("--packed-file is for one model; --packed keeps a file beside each"), kUsage;
  const auto interrupted = [] { return Interrupted().load(); };
  std::vector<api::Timing> timings;
  Progress progress(!flags.json);
  const runtime::PackingWatch watch([&progress](int64_t done, int64_t total) { progress.Show(kPacking, done, total); });
  for (const std::string& path : flags.models) {
    auto graph = ReadModel(path, nullptr, !flags.packed.PathFor(path).empty());
    if (!graph) return Fail(graph.error());
    auto batches = InputsFor(*graph, flags);
    if (!batches) return Fail(batches.error());
    api::Opened opened = flags.as_is ? api::Opened{std::move(*graph), {}} : api::FuseToRun(std::move(*graph));
    const std::string packed = flags.packed.PathFor(path);
    if (const auto files = CheckFiles({{path, "the model that is read"}}, {{packed, "--packed"}}); !files)
      return Fail(files.error());
    for (int threads : flags.threads.empty() ? std::vector<int>{0} : flags.threads) {
      for (const ir::TensorMap& inputs : *batches) {
        auto model = runtime::Model::Compile(
            opened.graph,
            {.threads = threads, .interrupted = interrupted, .packed_file = packed, .packed_by = api::VersionText()});
        progress.Done();
        if (!model) return Fail(model.error());
        Note(std::exchange(opened.note, {}));
        Note(model->packed().note);
        timings.push_back({path, model->threads(), std::move(*model), inputs});
      }
    }
  }
  const Patience patience(5);
  const auto done = api::Bench(timings, {.seconds = flags.seconds.value_or(3), .interrupted = interrupted});
  if (!done && !Interrupted()) return Fail(done.error());
  Print(timings, flags);
  return Interrupted() ? kInterrupted : kOk;
}

}  // namespace

void AddBench(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("bench", "time models against each other, taking turns");
  c->add_option("model", flags->models, "ONNX models; ratios are against the first")->type_name("MODEL.onnx");
  c->add_option("--inputs,--input", flags->inputs, "a batch; without it a random one")->type_name("X.npz");
  c->add_option("--shape", flags->shapes,
                "sizes of an input of the random batch, as input_ids=1x128; several after commas are timed one by one; "
                "may be given for more than one input")
      ->type_name("INPUT=SIZES")
      ->allow_extra_args(false)
      ->excludes("--inputs");
  c->add_option("--threads", flags->threads,
                "thread counts to try, e.g. 1,2; 0: all. With --kernels: against one thread, 2 unless given")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024));
  c->add_option("--seconds", flags->seconds, "per model and thread count, 3 unless given; with --kernels per row, 1")
      ->check(CLI::PositiveNumber);
  c->add_flag("--as-is", flags->as_is, "do not fuse the graphs before they run");
  AddPacked(*c, flags->packed);
  c->add_flag("--kernels", flags->kernels,
              "no model: the kernel pair on this CPU against its measured peak and oneDNN");
  c->add_option("--format", flags->format, "md, csv or json instead of a table for a terminal")
      ->check(CLI::IsMember({"md", "csv", "json"}));
  c->add_flag("--json", flags->json, "for programs; the same as --format json");
  c->footer(
      "Example:\n  octavo bench model.onnx model.int8.onnx --inputs batch.npz --threads 1,2\n  octavo bench "
      "model.int8.onnx --shape input_ids=1x16,8x128 --format md\n  octavo bench --kernels");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
