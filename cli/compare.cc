#include <cmath>
#include <cstdio>
#include <format>

#include "octavo/api/loss.h"
#include "octavo/cli/cli.h"
#include "octavo/ir/json.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string a, b, data;
  int threads = 0;
  bool json = false;
};

nlohmann::ordered_json Number(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

void Print(const Flags& flags, const std::map<std::string, quant::ErrorStats>& stats, int64_t batches) {
  if (flags.json) {
    nlohmann::ordered_json json = {{"schema", 1}, {"batches", batches}, {"outputs", nlohmann::ordered_json::array()}};
    for (const auto& [name, s] : stats) {
      json["outputs"].push_back({{"name", name},
                                 {"elements", s.count()},
                                 {"sqnr_db", Number(s.SqnrDb())},
                                 {"cosine", s.Cosine()},
                                 {"mean_row_cosine", s.MeanRowCosine()},
                                 {"max_abs", s.MaxAbs()},
                                 {"mean_abs", s.MeanAbs()},
                                 {"mismatches", s.mismatches()},
                                 {"exact", s.exact()}});
    }
    std::printf("%s\n", ir::Dump(json, 1).c_str());
    return;
  }
  std::vector<std::vector<std::string>> rows{
      {"output", "elements", "SQNR dB", "cosine", "row cosine", "max abs", "mean abs"}};
  for (const auto& [name, s] : stats) {
    rows.push_back({name, std::to_string(s.count()), s.exact() ? "equal" : std::format("{:.2f}", s.SqnrDb()),
                    std::format("{:.6f}", s.Cosine()), std::format("{:.6f}", s.MeanRowCosine()),
                    std::format("{:.3g}", s.MaxAbs()), std::format("{:.3g}", s.MeanAbs())});
  }
  std::printf("%s against %s, %lld batches\n%s", flags.b.c_str(), flags.a.c_str(), static_cast<long long>(batches),
              Table(rows, {1, 2, 3, 4, 5, 6}).c_str());
}

int Run(const Flags& flags) {
  auto a = ReadModel(flags.a);
  if (!a) return Fail(a.error());
  auto b = ReadModel(flags.b);
  if (!b) return Fail(b.error());
  const auto caches_a = passes::quantize::CodedCaches(*a), caches_b = passes::quantize::CodedCaches(*b);
  // Floats fit both where only one of them takes codes.
  auto data = OpenDataFor(caches_a.empty() ? *a : *b, flags.data);
  if (!data) return Fail(data.error());
  const runtime::CompileOptions how{.threads = flags.threads, .interrupted = [] { return Interrupted().load(); }};
  auto first = runtime::Model::Compile(std::move(*a), how);
  if (!first) return Fail(first.error());
  auto second = runtime::Model::Compile(std::move(*b), how);
  if (!second) return Fail(second.error());
  std::map<std::string, quant::ErrorStats> stats;
  Progress progress(!flags.json);
  int64_t done = 0;
  const Patience patience(10);
  while (!Interrupted()) {
    auto batch = (*data)->Next();
    if (!batch) return Fail(batch.error());
    if (!*batch) break;
    auto want = api::NamedOutputs(*first, caches_a, (*batch)->inputs);
    if (!want && Interrupted()) break;
    if (!want) return Fail(flags.a + ": " + want.error().message);
    auto got = api::NamedOutputs(*second, caches_b, (*batch)->inputs);
    if (!got && Interrupted()) break;
    if (!got) return Fail(flags.b + ": " + got.error().message);
    api::LeaveOutPadding((*batch)->inputs, *want);
    api::LeaveOutPadding((*batch)->inputs, *got);
    if (auto ok = quant::AddErrors(*want, *got, stats); !ok) return Fail(ok.error());
    progress.Show("compare", ++done, (*data)->size());
  }
  progress.Done();
  Print(flags, stats, done);
  return Interrupted() ? kInterrupted : kOk;
}

}  // namespace

void AddCompare(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand(
      "compare",
      "how far the outputs of two models are apart; of [b, s, ...] without the tokens that an attention mask hides");
  c->add_option("a", flags->a, "the model to trust")->required()->type_name("A.onnx");
  c->add_option("b", flags->b, "the model to judge")->required()->type_name("B.onnx");
  c->add_option("--data", flags->data, "batches, as for optimize --calib")->required();
  c->add_option("--threads", flags->threads, "threads; 0: all")->check(CLI::Range(0, 1024));
  c->add_flag("--json", flags->json, "for programs");
  c->footer("Example:\n  octavo compare model.onnx model.int8.onnx --data batches/");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
