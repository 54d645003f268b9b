// Of the options' recipe or pipeline: which passes run.
#include <algorithm>
#include <format>
#include <utility>

#include "octavo/api/attempt.h"
#include "octavo/api/options.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;

bool HasMoments(const OptimizeOptions& options) {
  return options.calibration != nullptr && !options.calibration->moments.empty();
}

Halves Cut(const passes::Pipeline& pipeline) {
  Halves h;
  for (const std::string& p : pipeline.passes) {
    if (p == passes::kCalibrate) {
      h.calibrates = true;
    } else {
      (h.calibrates ? h.after : h.before).push_back(p);
    }
  }
  return h;
}

namespace {

bool Takes(const Option& option, const std::string& recipe) {
  return option.recipes.empty() || std::ranges::find(option.recipes, recipe) != option.recipes.end();
}

// `bits` is an option of the pass, so that a file's metadata replays it.
ir::Status SetBits(const OptimizeOptions& options, passes::Pipeline& pipeline) {
  if (!options.bits) return {};
  const auto pass = std::ranges::find_first_of(pipeline.passes, passes::kOfBits);
  if (pass == pipeline.passes.end())
    return ir::Fail("bits: there are no weights of 4 bits; leave it out, or use the recipes dynamic4 and weights4");
  auto& of_pass = pipeline.options[*pass];
  if (of_pass.contains("bits"))
    return ir::Fail("bits: the option bits of the pass {} says the same; give one of them", *pass);
  of_pass["bits"] = *options.bits;
  return {};
}

Result<passes::Pipeline> WithNames(passes::Pipeline pipeline, const OptimizeOptions& options) {
  OCTAVO_TRY(pipeline, passes::WithDynamic(std::move(pipeline), options.dynamic));
  return passes::WithFloat(std::move(pipeline), options.keep_float);
}

}  // namespace

const passes::Registry& RegistryOf(const OptimizeOptions& options) {
  return options.registry != nullptr ? *options.registry : passes::Registry::Own();
}

Result<passes::Pipeline> PipelineOf(const OptimizeOptions& options, const Graph& graph) {
  const std::vector<const Option*> adding = AddingOptions(options);
  if (options.pipeline && !adding.empty()) {
    const passes::AddedPass& a = adding[0]->adds;
    std::string places;
    for (const std::string_view place : a.places) places += std::format("{}'{}'", places.empty() ? "" : ", ", place);
    return ir::Fail("{} goes with a recipe; in a pipeline of your own put the pass '{}' {} the first of {}",
                    adding[0]->name, a.pass, a.behind ? "behind" : "before", places);
  }
  const passes::Registry& registry = RegistryOf(options);
  if (options.pipeline) {
    if (options.bits)
      return ir::Fail(
          "bits: it goes with a recipe; in a pipeline of your own set the option bits of the pass weights4");
    OCTAVO_TRY_STATUS(CheckPasses(*options.pipeline, registry));
    return WithNames(*options.pipeline, options);
  }
  const bool fuses = (options.recipe == "int8" || options.recipe == "fp8") && passes::vendor::IsQuantized(graph);
  OCTAVO_TRY(passes::Pipeline pipeline, passes::PipelineOfRecipe(fuses ? "quantized" : options.recipe, registry));
  for (const Option* option : adding) {
    if (!Takes(*option, options.recipe)) return ir::Fail("{}", option->adds.refusal);
    OCTAVO_TRY(pipeline, passes::WithPass(std::move(pipeline), option->adds));
  }
  if (!options.fit || (options.data == nullptr && !HasMoments(options))) std::erase(pipeline.passes, "fit_weights");
  for (const auto& [pass, given] : options.pass_options) {
    for (const auto& [name, value] : given) pipeline.options[pass][name] = value;
  }
  OCTAVO_TRY_STATUS(SetBits(options, pipeline));
  OCTAVO_TRY_STATUS(CheckPasses(pipeline, registry));
  return WithNames(std::move(pipeline), options);
}

}  // namespace octavo::api
