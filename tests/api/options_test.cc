// The table of options says what is so: its passes exist, a recipe takes exactly the options that are for it, and sentences name what there is.
#include "octavo/api/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "octavo/api/attempt.h"
#include "octavo/ir/json.h"

namespace octavo::api {
namespace {

TEST(Options, NamesAndFlagsAreTold) {
  std::set<std::string> flags;
  for (const Option& o : Options()) {
    EXPECT_TRUE(flags.insert(FlagOf(o)).second) << o.name;
    EXPECT_EQ(HelpOf(o).find_first_of("{}"), std::string::npos) << HelpOf(o);
  }
  EXPECT_TRUE(flags.contains("--quantize-kv-cache"));
  EXPECT_TRUE(flags.contains("--no-fit"));
  const auto named = std::ranges::find(Options(), "min_db", &Option::name);
  EXPECT_NE(HelpOf(*named).find("on --held-out samples of --calib"), std::string::npos);
  EXPECT_TRUE(HelpOf(*named).ends_with("(every recipe but float and quantized)")) << HelpOf(*named);
}

TEST(Options, PassesExist) {
  for (const Option& o : Options()) {
    for (const std::string_view pass : o.acts) {
      EXPECT_TRUE(pass == passes::kCalibrate || passes::Registry::Own().Find(pass) != nullptr) << o.name << " " << pass;
    }
  }
}

// Asks for each option alone: what it is not for refuses it.
TEST(Options, RecipesTakeWhatIsForThem) {
  const ir::Graph graph;
  int refused = 0;
  for (const Option& o : Options()) {
    if (o.name != "reduce_range" && o.name != "quantize_kv_cache" && o.name != "keep_float" && o.name != "dynamic" &&
        o.name != "bits")
      continue;
    for (const passes::Recipe& recipe : passes::Recipes()) {
      OptimizeOptions options;
      options.recipe = recipe.name;
      if (const auto* flag = std::get_if<bool OptimizeOptions::*>(&o.field)) options.** flag = true;
      if (const auto* number = std::get_if<std::optional<double> OptimizeOptions::*>(&o.field)) options.** number = 5;
      if (const auto* names = std::get_if<std::vector<std::string> OptimizeOptions::*>(&o.field))
        (options.**names).emplace_back("*");
      const bool is_for = std::ranges::find(o.recipes, recipe.name) != o.recipes.end();
      EXPECT_EQ(PipelineOf(options, graph).has_value(), is_for) << o.name << " with " << recipe.name;
      refused += is_for ? 0 : 1;
    }
  }
  EXPECT_EQ(refused, 6 + 6 + 2 + 7 + 6);
}

TEST(Options, JsonHasTypesAndDefaults) {
  const auto json = ir::ParseJson(OptionsJson(), "the table");
  ASSERT_TRUE(json.has_value());
  std::map<std::string, std::pair<std::string, std::string>> types;
  for (const auto& o : (*json)["options"]) types[o["name"]] = {o["type"], o["default"].dump()};
  const std::map<std::string, std::pair<std::string, std::string>> wanted = {
      {"recipe", {"name", "\"int8\""}},    {"calibrator", {"name", "\"mse\""}}, {"fit", {"flag", "true"}},
      {"reduce_range", {"flag", "false"}}, {"keep_float", {"names", "null"}},   {"min_db", {"number", "null"}},
      {"threads", {"count", "0"}}};
  for (const auto& [name, type] : wanted) EXPECT_EQ(types[name], type) << name;
  EXPECT_EQ((*json)["arguments"]["calibration"], "--calib");
}

TEST(Options, OfPasses) {
  OptimizeOptions options;
  EXPECT_TRUE(SetPassOptions({"weights4.block=64"}, options));
  EXPECT_EQ(options.pass_options.at("weights4").at("block"), passes::OptionValue(int64_t{64}));
  const ir::Status wrong = SetPassOptions({"block=64"}, options);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "set takes PASS.OPTION=VALUE, as in weights4.block=64, not 'block=64'");
  options.pipeline = passes::Pipeline{{"canonical", "weights4"}};
  EXPECT_TRUE(SetPassOptions({"weights4.block=16"}, options));
  EXPECT_EQ(options.pipeline->options.at("weights4").at("block"), passes::OptionValue(int64_t{16}));
}

}  // namespace
}  // namespace octavo::api
