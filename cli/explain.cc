#include "octavo/api/explain.h"

#include <algorithm>
#include <cstdio>
#include <format>

#include "octavo/cli/cli.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string model;
  api::Wanted wanted;
  bool json = false;
};

// A rule or pass that is asked for by name: where it fired, and its nearest misses, deepest first.
void PrintRule(const Flags& flags, const api::Optimized& result) {
  std::vector<passes::NearMiss> misses = result.misses;
  std::erase_if(misses, [&](const passes::NearMiss& m) { return !flags.wanted(m); });
  std::stable_sort(misses.begin(), misses.end(), [](const auto& a, const auto& b) { return a.matched > b.matched; });
  bool told = false;
  for (const passes::Candidate& c : result.report.candidates) {
    if (c.rule != flags.wanted.rule || !flags.wanted(c)) continue;
    if (c.status != "left") std::printf("%s  fired at %s\n", c.rule.c_str(), ir::Clean(passes::SourceOf(c)).c_str());
    if (c.status != "left" || !misses.empty()) continue;
    std::printf("%s  left %s\n  no  %s\n", c.rule.c_str(), ir::Clean(passes::SourceOf(c)).c_str(),
                ir::Clean(c.reason, c.reason.size()).c_str());
    told = true;
  }
  if (misses.empty() && !told) std::printf("%s: nothing came near without matching\n", flags.wanted.rule.c_str());
  for (size_t i = 0; i < misses.size() && i < 10; ++i) {
    const passes::NearMiss& m = misses[i];
    std::printf("%s  nearest miss, %d nodes matched, at %s\n  no  %s: %s\n", m.rule.c_str(), m.matched,
                ir::Clean(m.root).c_str(), m.kind.c_str(), ir::Clean(m.reason, m.reason.size()).c_str());
  }
}

int Run(const Flags& flags) {
  const auto registry = LoadedPasses();
  if (!registry) return Fail(registry.error());
  std::string picture;
  if (!flags.wanted.rule.empty()) {
    auto found = api::PictureOf(flags.wanted.rule, **registry);
    if (!found) return Fail(found.error());
    picture = *std::move(found);
    if (flags.model.empty()) return std::fputs(picture.c_str(), stdout), kOk;
  }
  if (flags.model.empty()) return Fail("explain needs a model, or --rule alone for the picture of a rule"), kUsage;
  auto graph = ReadModel(flags.model);
  if (!graph) return Fail(graph.error());
  const auto result = api::Explain(*std::move(graph), flags.wanted, *registry);
  if (!result) return Fail(result.error());
  if (flags.json) {
    std::printf("%s\n", ir::Dump(api::ExplainJson(*result, flags.wanted), 1).c_str());
  } else if (!picture.empty()) {
    std::printf("%s\n", picture.c_str());
    PrintRule(flags, *result);
  } else {
    std::vector<std::vector<std::string>> rows{{"what", "source node", "status", "rule", "reason"}};
    for (const passes::Candidate& c : result->report.candidates) {
      if (flags.wanted(c)) rows.push_back({c.kind, passes::SourceOf(c), c.status, c.rule, c.reason});
    }
    std::fputs(Table(rows).c_str(), stdout);
    const passes::Report& p = result->report;
    std::printf("\nattention %d/%d fused, qkv %d/%d fused (by the passes that need no calibration data)\n",
                p.attention.done, p.attention.found, p.qkv.done, p.qkv.found);
    if (result->report.candidates.empty()) std::puts("no attention, no Linear and no Softmax was found in the model");
  }
  return kOk;
}

}  // namespace

void AddExplain(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("explain", "which attention fuses, and what the rest misses by");
  c->add_option("model", flags->model, "ONNX model")->type_name("MODEL.onnx");
  c->add_option(
      "--rule", flags->wanted.rule,
      "one rule or pass, e.g. sdpa: a picture of its pattern and, with a model, where it fired and its nearest misses");
  c->add_option("--node", flags->wanted.node, "only what concerns source nodes whose name contains this");
  c->add_flag("--json", flags->json, "for programs");
  c->footer("Example:\n  octavo explain model.onnx --rule sdpa");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
