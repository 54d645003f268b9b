#include "octavo/api/compare.h"

#include <cmath>
#include <cstdio>
#include <format>

#include "octavo/cli/cli.h"
#include "octavo/ir/names.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string a, b, data;
  int threads = 0;
  bool json = false, layers = false;
};

std::string Db(double db, const char* none = "equal") {
  return std::isinf(db) ? (db > 0 ? none : "lost") : std::format("{:.1f}", db);
}

std::string Layers(const std::vector<api::LayerDifference>& layers) {
  if (layers.empty()) return "\nno layer of the second model names nodes of the first: was it made of it?\n";
  std::vector<std::vector<std::string>> rows{{"layer", "op", "dB", "cosine", "enters", "own", "clipped", "to 0"}};
  std::string advice;
  for (const api::LayerDifference& d : layers) {
    // "equal" is equal bits; who adds nothing to the noise that enters has "none" of its own.
    rows.push_back({d.node, d.op, Db(d.sqnr_db), std::format("{:.4f}", d.cosine),
                    std::isinf(d.enters_db) ? "-" : Db(d.enters_db), Db(d.own_db, "none"),
                    std::format("{:.2f} %", 100 * d.clipped), std::format("{:.1f} %", 100 * d.flushed)});
    if (const std::string told = api::AdviceFor(d); !told.empty())
      advice += Paragraph(std::format("{}: {}", ir::Clean(d.node), InFlags(told)), 2) + "\n";
  }
  return "\nlayers, those that add most noise of their own first\n" + Table(rows, {2, 3, 4, 5, 6, 7}) +
         (advice.empty() ? "" : "\n" + advice);
}

void Print(const Flags& flags, const api::Comparison& comparison) {
  if (flags.json) {
    std::printf("%s\n", ir::Dump(api::ToJson(comparison), 1).c_str());
    return;
  }
  std::vector<std::vector<std::string>> rows{
      {"output", "elements", "SQNR dB", "cosine", "row cosine", "max abs", "mean abs"}};
  for (const auto& [name, s] : comparison.outputs) {
    rows.push_back({name, std::to_string(s.count()), s.exact() ? "equal" : std::format("{:.2f}", s.SqnrDb()),
                    std::format("{:.6f}", s.Cosine()), std::format("{:.6f}", s.MeanRowCosine()),
                    std::format("{:.3g}", s.MaxAbs()), std::format("{:.3g}", s.MeanAbs())});
  }
  std::printf("%s against %s, %lld batches\n%s", flags.b.c_str(), flags.a.c_str(),
              static_cast<long long>(comparison.batches), Table(rows, {1, 2, 3, 4, 5, 6}).c_str());
  if (flags.layers) std::fputs(Layers(comparison.layers).c_str(), stdout);
}

int Run(const Flags& flags) {
  auto a = ReadModel(flags.a);
  if (!a) return Fail(a.error());
  auto b = ReadModel(flags.b);
  if (!b) return Fail(b.error());
  Progress progress(!flags.json);
  api::CompareOptions options{.a = flags.a, .b = flags.b, .threads = flags.threads, .layers = flags.layers};
  options.open_data = [&](const ir::Graph& graph) { return OpenDataFor(graph, flags.data); };
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { progress.Show(stage, done, total); };
  options.interrupted = [] { return Interrupted().load(); };
  const Patience patience(10);
  const auto comparison = api::Compare(*std::move(a), *std::move(b), options);
  progress.Done();
  if (!comparison) return Fail(comparison.error());
  Print(flags, *comparison);
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
  c->add_flag("--per-layer", flags->layers,
              "where B, which octavo made of A, loses: every fused or quantized layer against what it stands for");
  c->add_flag("--json", flags->json, "for programs");
  c->footer("Example:\n  octavo compare model.onnx model.int8.onnx --data batches/");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
