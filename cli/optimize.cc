#include "octavo/api/optimize.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <format>

#include "octavo/api/assume.h"
#include "octavo/api/lost.h"
#include "octavo/api/made.h"
#include "octavo/api/options.h"
#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/api/version_text.h"
#include "octavo/api/weights.h"
#include "octavo/cli/cli.h"
#include "octavo/cli/measure.h"
#include "octavo/integrations/onnxruntime/session.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/sha256.h"
#include "octavo/ir/text.h"
#include "octavo/ir/whole_file.h"

namespace octavo::cli {

namespace {

struct Flags {
  api::OptimizeOptions options;  // those of the table (api/options.h)
  std::string in, out, attention = "standard", calib, report, json, pipeline, print_after;
  std::vector<std::string> require, set, assume;
  std::string split_if, weights;
  std::string calib_name, typed;  // what a caller that made --calib out of something else wants people to read
  bool quiet = false, measure = true, record = false;
};

std::string Percent(int64_t part, int64_t whole) {
  return whole > 0 ? std::format("{:.0f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

// "in float: 37 Conv (6576.5 KB of 7273.3 KB)": what keeps a file large and a model slow that is mostly no transformer.
std::string WhatStaysFloat(const api::Optimized& r, int64_t bytes) {
  if (r.report.linear.done == 0) return {};  // "float" says it by its name
  std::string line;
  for (const passes::FloatWeights& f : r.report.in_float) {
    if (f.bytes * 20 < bytes) continue;
    line += std::format("{}{} {} ({} of {})", line.empty() ? "in float: " : ", ", f.weights, f.op, HumanBytes(f.bytes),
                        HumanBytes(bytes));
  }
  return line.empty() ? line : line + "; this recipe does not quantize them\n";
}

// "against the model as it was, on 2 samples held out of calibration: 'logits' 31.4 dB (+- 0.3; cosine 0.99961 +- 2e-05); of 3 outputs
// 'present' keeps least, 20.1 dB"
std::string Loss(const api::Optimized& r) {
  const api::Losses::value_type* worst = api::Worst(r.losses);
  if (worst == nullptr) return {};
  const api::Losses::value_type& told = *r.losses.find(api::MostLost(r).output);
  const auto& [name, stats] = told;
  const bool is_worst = name == worst->first;
  std::string figures =
      stats.exact() ? "equal" : std::format("{:.1f} dB ({})", stats.SqnrDb(), api::HowSure(r.loss_details, told));
  if (!is_worst)
    figures += std::format("; of {} outputs {} keeps least, {:.1f} dB", r.losses.size(), ir::Quoted(worst->first),
                           api::Decibels(worst->second));
  return std::format("against the model as it was, on {}: {}{} {}\n", api::WhatWasSeen(r.loss_details),
                     is_worst && r.losses.size() > 1 ? std::format("worst of {} outputs ", r.losses.size()) : "",
                     ir::Quoted(name), figures);
}

// The ten that lose most, with what a goal made of them.
std::string Layers(const std::vector<api::LayerLoss>& layers) {
  if (layers.empty()) return {};
  std::vector<std::vector<std::string>> rows{
      {"quantized alone", "dB", layers[0].kl ? "KL" : "1 - cosine", "share of the loss", "here"}};
  for (size_t i = 0; i < std::min<size_t>(layers.size(), 10); ++i) {
    const api::LayerLoss& l = layers[i];
    rows.push_back({l.node, l.stats.exact() ? "equal" : std::format("{:.1f}", l.stats.SqnrDb()),
                    std::format("{:.2g}", l.kl.value_or(std::max(1 - l.stats.MeanRowCosine(), 0.0))),
                    std::format("{:.1f} %", 100 * l.share), l.type});
  }
  if (layers[0].type.empty()) {
    for (auto& row : rows) row.pop_back();
  }
  return "\n" + Table(rows, {1, 2, 3});
}

// "for --min-db 25: 6 of 44 layers dynamic, 0 in float"
std::string Types(const api::Optimized& r, const api::OptimizeOptions& options) {
  std::string goals;
  for (const auto& [flag, asked] :
       {std::pair("--min-db", options.min_db), {"--min-cosine", options.min_cosine}, {"--max-kl", options.max_kl}}) {
    if (asked) goals += std::format("{}{} {:g}", goals.empty() ? "" : ", ", flag, *asked);
  }
  if (goals.empty()) return {};
  const auto of = [&r](const char* type) { return std::ranges::count(r.layers, type, &api::LayerLoss::type); };
  return std::format("for {}: {} of {} layers dynamic, {} in float\n", goals, of("dynamic"), r.layers.size(),
                     of("float"));
}

// Attention blocks and projection groups one by one, Linears only where one was left: there may be hundreds.
void PrintTable(const api::Optimized& r, const api::FileSizes& bytes, const api::OptimizeOptions& options) {
  std::vector<std::vector<std::string>> rows{{"what", "source node", "status", "rule", "reason"}};
  for (const passes::Candidate& c : r.report.candidates) {
    if (c.kind == "linear" && c.status == "quantized") continue;
    const std::string more = c.kind == "qkv" && c.nodes.size() > 1 ? std::format(" +{}", c.nodes.size() - 1) : "";
    rows.push_back({c.kind, passes::SourceOf(c) + more, c.status, c.rule, c.reason});
  }
  std::fputs(Table(rows).c_str(), stdout);
  const passes::Report& p = r.report;
  std::printf("\nattention %d/%d fused, qkv %d/%d fused, linear %d/%d quantized\n", p.attention.done, p.attention.found,
              p.qkv.done, p.qkv.found, p.linear.done, p.linear.found);
  std::fputs(WhatStaysFloat(r, bytes.after).c_str(), stdout);
  std::printf("%s -> %s (%s), %.1f s\n", HumanBytes(bytes.before).c_str(), HumanBytes(bytes.after).c_str(),
              Percent(bytes.after, bytes.before).c_str(), r.seconds);
  if (!r.data.empty()) std::printf("calibrated on %s\n", r.data.c_str());
  std::fputs(Loss(r).c_str(), stdout);
  std::fputs(Types(r, options).c_str(), stdout);
  std::fputs(Layers(r.layers).c_str(), stdout);
}

ir::Result<passes::Pipeline> ReadPipeline(const std::string& path) {
  if (path.ends_with(".onnx")) {
    OCTAVO_TRY(const ir::Graph graph, ReadModel(path));
    return passes::PipelineOfGraph(graph);
  }
  OCTAVO_TRY(const std::string text, ir::ReadWholeFile(path, {.most = 1'000'000}));
  return passes::PipelineFromJson(text);
}

// Sentences for what --require-fused names and was left.
std::vector<std::string> Missing(const Flags& flags, const passes::Report& report) {
  std::vector<std::string> sentences;
  for (const std::string& what : flags.require) {
    const std::string kind = what == "sdpa" ? "attention" : what;
    bool found = false;
    for (const passes::Candidate& c : report.candidates) {
      if (c.kind != kind) continue;
      found = true;
      if (c.status == "fused") continue;
      sentences.push_back(std::format("{} at '{}' is {}: {}", what, passes::SourceOf(c),
                                      c.status == "left" ? "left unfused" : "only quantized", c.reason));
    }
    if (!found) sentences.push_back(std::format("{}: the model has none that octavo can see", what));
  }
  return sentences;
}

// Of the files that were read, before one of them is written over. Pipes have none.
ir::Result<api::Provenance> ProvenanceOf(const Flags& flags, const std::vector<NamedFile>& read) {
  api::Provenance from{.command = flags.typed.empty() ? CommandLine() : flags.typed, .version = api::VersionText()};
  for (const NamedFile& file : read) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(file.path, none) && !std::filesystem::is_directory(file.path, none)) continue;
    OCTAVO_TRY(std::string hash, ir::HashOf(file.path));
    const bool made = file.path == flags.calib && !flags.calib_name.empty();
    const std::string what = file.what.substr(0, file.what.find(" '"));  // "data of the model 'm.onnx'"
    from.sha256.emplace_back(std::format("{}: {}", what, made ? "made of " + flags.calib_name : file.path),
                             std::move(hash));
  }
  return from;
}

using Measured = std::optional<ir::Result<api::Measured>>;

ir::Status WriteReports(const Flags& flags, const api::Optimized& r, const api::FileSizes& bytes,
                        const api::Provenance& from, const Measured& measured) {
  if (!flags.json.empty()) {
    const std::string json = api::ReportJson(r, bytes, measured && *measured ? &**measured : nullptr);
    if (flags.json == "-") {
      std::fputs(json.c_str(), stdout);
    } else {
      OCTAVO_TRY_STATUS(ir::WriteWholeFile(flags.json, json));
    }
  }
  if (!flags.report.empty())
    OCTAVO_TRY_STATUS(
        ir::WriteWholeFile(flags.report, api::ReportHtml(r, bytes, flags.in, from, measured ? &*measured : nullptr)));
  return {};
}

// "out.true.onnx" beside "out.onnx".
std::string OfBranch(const std::string& out, const char* value) {
  const std::filesystem::path path = out;
  return (path.parent_path() / path.stem()).string() + "." + value + path.extension().string();
}

// The file, or with --split-if one for each value of the input. Their bytes.
ir::Result<int64_t> WriteModels(const Flags& flags, const ir::Graph& graph) {
  const auto form = flags.attention == "onnx23" ? ir::onnx::AttentionForm::kOnnx23 : ir::onnx::AttentionForm::kStandard;
  const auto write = [&](const ir::Graph& g, const std::string& out) -> ir::Result<int64_t> {
    OCTAVO_TRY_STATUS(ir::onnx::WriteFile(g, out, {.attention = form}));
    return api::BytesOfModel({}, FileBytes(out)) + FileBytes(out + ".data");
  };
  if (flags.split_if.empty()) return write(graph, flags.out);
  int64_t bytes = 0;
  for (const char* value : {"true", "false"}) {
    OCTAVO_TRY(const ir::Graph branch, api::BranchOf(graph, flags.split_if, value));
    OCTAVO_TRY(const int64_t more, write(branch, OfBranch(flags.out, value)));
    bytes += more;
  }
  return bytes;
}

int Run(const Flags& flags) {
  std::vector<NamedFile> read{{flags.in, "the model that is read", true},
                              {flags.pipeline, "the pipeline that is read"},
                              {flags.calib, "the calibration data"},
                              {flags.weights, "the weights"}};
  std::vector<NamedFile> written{{flags.out, "-o", true}, {flags.report, "--report"}, {flags.json, "--json"}};
  for (const char* value : {"true", "false"}) {
    if (!flags.split_if.empty()) written.push_back({OfBranch(flags.out, value), "a branch of -o"});
  }
  if (const auto files = CheckFiles(read, written); !files) return Fail(files.error());
  auto graph = ReadModel(flags.in, &read);
  if (!graph) return Fail(graph.error());
  for (const std::string& one : flags.assume) {
    const size_t equal = one.find('=');
    if (equal == std::string::npos)
      return Fail(std::format("--assume takes INPUT=VALUE, not {}", ir::Quoted(one))), kUsage;
    if (auto ok = api::Assume(*graph, one.substr(0, equal), one.substr(equal + 1)); !ok) return Fail(ok.error());
  }
  if (!flags.weights.empty()) {
    const auto taken = api::TakeWeights(*graph, flags.weights);
    if (!taken) return Fail(taken.error());
    for (const std::string& note : taken->notes) Note(flags.quiet ? std::string() : note);
  }
  if (!SameFile(flags.in, flags.out)) written.push_back({flags.out + ".data", "weights beside -o"});
  if (const auto files = CheckFiles(read, written); !files) return Fail(files.error());
  api::OptimizeOptions options = flags.options;
  if (!flags.pipeline.empty()) {
    auto pipeline = ReadPipeline(flags.pipeline);
    if (!pipeline) return Fail(pipeline.error());
    options.pipeline = std::move(*pipeline);
  }
  const auto registry = LoadedPasses();
  if (!registry) return Fail(registry.error());
  options.registry = *registry;
  options.other_runtime = integrations::onnxruntime::RuntimeNamed(options.calibrate_with);
  if (auto set = api::SetPassOptions(flags.set, options); !set) return Fail(set.error()), kUsage;
  if (!flags.print_after.empty() && flags.print_after != "all" && (*registry)->Find(flags.print_after) == nullptr)
    return Fail(std::format("--print-after: there is no pass {}; there are: {}", ir::Quoted(flags.print_after),
                            (*registry)->Names())),
           kUsage;
  std::unique_ptr<quant::DataSource> data;
  quant::Calibration ranges;
  if (flags.calib.ends_with(".calib")) {
    auto loaded = quant::Calibration::Load(flags.calib);
    if (!loaded) return Fail(loaded.error());
    ranges = std::move(*loaded);
    options.calibration = &ranges;
  } else if (!flags.calib.empty()) {
    auto opened = OpenDataFor(*graph, flags.calib);
    if (!opened) return Fail(opened.error());
    data = std::move(*opened);
    options.data = data.get();
  }
  if (!flags.print_after.empty()) {
    options.after_pass = [&](std::string_view pass, const ir::Graph& g) {
      if (flags.print_after != "all" && flags.print_after != pass) return;
      std::printf("# after %s\n%s\n", std::string(pass).c_str(), ir::ToText(g, {.elide_constants_above = 16}).c_str());
    };
  }
  Progress progress(!flags.quiet);
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { progress.Show(stage, done, total); };
  const bool measures = flags.measure && !flags.report.empty();
  ToMeasure what{.came = measures ? *graph : ir::Graph(), .before = flags.in, .after = flags.out, .data = data.get()};
  api::FileSizes bytes;
  bytes.before = api::BytesOfModel(*graph, FileBytes(flags.in));
  auto result = api::Optimize(std::move(*graph), options);
  progress.Done();
  if (!result) return Fail(result.error());
  if (const size_t at = result->data.rfind(ir::Quoted(flags.calib));
      !flags.calib_name.empty() && at != std::string::npos)
    result->data.replace(at, std::string::npos, ir::Quoted(flags.calib_name));
  const std::vector<std::string> missing = Missing(flags, result->report);
  if (!missing.empty()) {
    for (const std::string& sentence : missing) Fail(sentence);
    return kNotFused;
  }
  auto from = flags.report.empty() && !flags.record ? api::Provenance{.version = api::VersionText()}
                                                    : ProvenanceOf(flags, read);
  if (!from) return Fail(from.error());
  api::RecordMade(options, *from, *result, flags.record);
  const Patience patience(10);  // files are written to their end
  const auto wrote = WriteModels(flags, result->graph);
  if (!wrote) return Fail(wrote.error());
  bytes.after = *wrote;
  Measured measured;
  if (measures) {
    progress.Show("measure", 0, -1);
    measured = MeasureHere(std::move(what), result->graph);
    progress.Done();
  }
  if (auto ok = WriteReports(flags, *result, bytes, *from, measured); !ok) return Fail(ok.error());
  for (const std::string& note : result->notes) Note(flags.quiet ? std::string() : InFlags(note));
  if (!flags.quiet && flags.json != "-") PrintTable(*result, bytes, options);
  return kOk;
}

// Adds one option of the table as a flag that writes into its field.
class OptionAdder {
 public:
  OptionAdder(const api::Option& option, api::OptimizeOptions& options, CLI::App& command)
      : o_(option), options_(options), command_(command), flag_(FlagOf(option)), help_(HelpOf(option)) {}
  void operator()(bool api::OptimizeOptions::* field) {
    const bool given = !(options_.*field);
    command_.add_flag_callback(flag_, [&to = options_.*field, given] { to = given; }, help_);
  }
  void operator()(int api::OptimizeOptions::* field) { AddNumber<int>(options_.*field); }
  void operator()(std::optional<double> api::OptimizeOptions::* field) { AddNumber<double>(options_.*field); }
  void operator()(std::vector<std::string> api::OptimizeOptions::* field) {
    command_.add_option(flag_, options_.*field, help_ + "; may be given more than once")
        ->type_name(std::string(o_.word))
        ->allow_extra_args(false);
  }
  void operator()(std::string api::OptimizeOptions::* field) {
    CLI::Option* added = command_.add_option(flag_, options_.*field, help_)->capture_default_str();
    if (!o_.allowed.empty()) added->check(OneOfAllowed());
    if (!o_.word.empty()) added->type_name(std::string(o_.word));
  }
  void operator()(quant::Calibrator api::OptimizeOptions::* field) {
    const auto set = [&to = options_.*field](const std::string& name) { to = *quant::CalibratorFromName(name); };
    command_.add_option_function<std::string>(flag_, set, help_)
        ->check(OneOfAllowed())
        ->default_str(std::string(Name(options_.*field)));
  }

 private:
  CLI::IsMember OneOfAllowed() const {
    return CLI::IsMember(std::vector<std::string>(o_.allowed.begin(), o_.allowed.end()));
  }
  template <typename T>
  void AddNumber(auto& to) {
    CLI::Option* added =
        command_.add_option(flag_, to, help_)->check(CLI::Range(static_cast<T>(o_.least), static_cast<T>(o_.most)));
    // NaN is in every range for CLI::Range, which asks whether it is below or above.
    added->check([](const std::string& value) {
      return std::isnan(std::strtod(value.c_str(), nullptr)) ? "Value " + value + " is no number" : std::string();
    });
    if (!o_.word.empty()) added->type_name(std::string(o_.word));
  }

  const api::Option& o_;
  api::OptimizeOptions& options_;
  CLI::App& command_;
  std::string flag_, help_;
};

}  // namespace

void AddOptimize(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("optimize", "fuse and quantize a model");
  c->add_option("model", flags->in, "ONNX model")->required()->type_name("IN.onnx");
  c->add_option("-o,--output", flags->out, "file to write")->required()->type_name("OUT.onnx");
  c->add_option(
      "--calib", flags->calib,
      "calibration data, an eighth of which tells what optimization took (--held-out): a folder of .npz batches, one "
      ".npz, a folder of test_data_set_* folders, random:N, or a "
      ".calib file that `octavo calibrate` wrote");
  for (const api::Option& option : api::Options()) std::visit(OptionAdder(option, flags->options, *c), option.field);
  c->add_option("--attention", flags->attention,
                "what float attention is written as: functions of standard ops, or ONNX Attention of opset 23 where it "
                "means the same")
      ->check(CLI::IsMember({"standard", "onnx23"}))
      ->capture_default_str();
  c->add_option("--report", flags->report, "write a self-contained HTML report")->type_name("FILE.html");
  c->add_flag_callback(
      "--no-measure", [flags] { flags->measure = false; },
      "with --report: do not time the model as it was and as it is on the first batch, nor look at their memory; "
      "without times the same "
      "command writes the same page");
  c->add_option("--json", flags->json, "write the report as JSON; - for standard output")->type_name("FILE");
  c->add_option("--require-fused", flags->require,
                "fail (exit code 3, nothing written) unless all of these are fused: qkv, sdpa")
      ->delimiter(',')
      ->check(CLI::IsMember({"qkv", "sdpa"}));
  c->add_option("--pipeline", flags->pipeline,
                "passes to run: a JSON file, or an optimized .onnx whose pipeline is replayed");
  c->add_option("--assume", flags->assume,
                "an input that always has this value, as use_cache_branch=true: the model is made for it and no longer "
                "has the input; an If on it becomes "
                "one branch, which is fused and quantized; may be given more than once")
      ->type_name("INPUT=VALUE")
      ->allow_extra_args(false);
  c->add_option(
       "--weights", flags->weights,
       "a GGUF file whose tensors take the place of the model's weights, in the codes that they have (Q4_0, Q5_0, "
       "Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4; others become floats)")
      ->type_name("FILE.gguf");
  c->add_option("--split-if", flags->split_if,
                "an input that an If decides by (use_cache_branch of a merged decoder): instead of OUT.onnx two files, "
                "OUT.true.onnx and OUT.false.onnx, each with one branch and the inputs that it reads")
      ->type_name("INPUT");
  c->add_option("--set", flags->set,
                "an option of a pass, as in weights4.block=64; `octavo passes` lists them; may be given more than once")
      ->type_name("PASS.OPTION=VALUE")
      ->allow_extra_args(false);
  c->add_option("--print-after", flags->print_after, "print the graph after this pass, or after all that change it")
      ->type_name("PASS");
  c->add_flag("--record", flags->record,
              "the file tells data, loss and SHA-256 of model and data, not only version, calibrator and passes");
  c->add_flag("-q,--quiet", flags->quiet, "print nothing but errors");
  c->add_option("--calib-name", flags->calib_name, "of a temporary --calib: what results call it")->group("");
  c->add_option("--typed", flags->typed, "what the report says was typed")->group("");
  c->footer(
      "Example:\n  octavo optimize bert.onnx -o bert.int8.onnx --calib batches/ --report report.html --require-fused "
      "qkv,sdpa");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
