#include <cstdio>
#include <format>

#include "octavo/api/passes_json.h"
#include "octavo/cli/cli.h"
#include "octavo/passes/pipelines.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string recipe;
  bool json = false;
};

void AddRow(const passes::Pass& pass, std::vector<std::vector<std::string>>& rows) {
  const passes::PassInfo& p = pass.info();
  std::string what = p.what;
  for (const passes::OptionInfo& o : p.options) {
    const std::string otherwise = std::visit([](const auto& v) { return std::format("{}", v); }, o.otherwise);
    what += std::format("; option {} ({}): {}", o.name, otherwise, o.what);
  }
  const std::string form = p.takes == passes::Form::kAny ? "" : std::format("{} -> {}", Name(p.takes), Name(p.leaves));
  rows.push_back(
      {pass.own() ? p.name : std::format("{} {}", p.name, p.version), form, std::string(Name(p.needs)), what});
}

int Run(const Flags& flags) {
  const auto registry = LoadedPasses();
  if (!registry) return Fail(registry.error());
  if (flags.json) return std::printf("%s\n", api::PassesJson(**registry).c_str()), kOk;
  std::vector<std::vector<std::string>> rows{{"pass", "form", "needs", "what it does"}};
  if (flags.recipe.empty()) {
    for (const auto& pass : (*registry)->passes()) AddRow(*pass, rows);
    std::fputs(Table(rows).c_str(), stdout);
    std::vector<std::vector<std::string>> recipes{{"recipe", "what it gives"}};
    for (const passes::Recipe& r : passes::Recipes()) recipes.push_back({std::string(r.name), std::string(r.what)});
    std::printf("\n%s", Table(recipes).c_str());
    return kOk;
  }
  const auto pipeline = passes::PipelineOfRecipe(flags.recipe, **registry);
  if (!pipeline) return Fail(pipeline.error());
  for (const std::string& name : pipeline->passes) {
    const passes::Pass* pass = (*registry)->Find(name);
    if (pass != nullptr) {
      AddRow(*pass, rows);
    } else {
      rows.push_back({name, "", "", "ranges of activations are gathered here"});
    }
  }
  std::fputs(Table(rows).c_str(), stdout);
  return kOk;
}

}  // namespace

void AddPasses(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("passes", "the passes and recipes that there are, with their options");
  c->add_option("--recipe", flags->recipe, "the passes of this recipe, in order");
  c->add_flag("--json", flags->json, "for programs: all passes, and those of each recipe in order");
  c->footer("Example:\n  octavo passes --recipe int8");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
