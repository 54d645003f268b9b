#include "octavo/api/options.h"

#include <algorithm>
#include <format>
#include <utility>

#include "octavo/api/attempt.h"
#include "octavo/ir/json.h"
#include "octavo/ir/names.h"

namespace octavo::api {

namespace {

using nlohmann::ordered_json;

Option RecipeOption() {
  Option recipe{.name = "recipe", .field = &OptimizeOptions::recipe, .what = {}};
  for (const passes::Recipe& r : passes::Recipes()) {
    recipe.what += std::format("{}{}: {}", recipe.what.empty() ? "" : "; ", r.name, r.what);
    recipe.allowed.push_back(r.name);
  }
  return recipe;
}

// Arguments that are no options, but that sentences name: what program and module call them.
constexpr std::pair<std::string_view, std::string_view> kArguments[] = {{"calibration", "--calib"}};

std::string FlagOfName(std::string_view name) {
  for (const auto& [argument, flag] : kArguments) {
    if (argument == name) return std::string(flag);
  }
  const auto option = std::ranges::find(Options(), name, &Option::name);
  OCTAVO_CHECK(option != Options().end(), "a sentence names an option that the table has");
  return FlagOf(*option);
}

bool IsOn(const Option& option) {
  const auto* const field = std::get_if<bool OptimizeOptions::*>(&option.field);
  return field != nullptr && OptimizeOptions().**field;
}

// "recipes int8 and fp8", "every recipe but float and quantized"; empty: all.
std::string RecipesOf(const Option& option) {
  std::vector<std::string_view> named = option.recipes, others;
  if (named.empty()) return {};
  for (const passes::Recipe& r : passes::Recipes()) {
    if (std::ranges::find(named, r.name) == named.end()) others.push_back(r.name);
  }
  const bool few = named.size() <= others.size();
  const std::vector<std::string_view>& list = few ? named : others;
  std::string line = !few ? "every recipe but " : list.size() == 1 ? "recipe " : "recipes ";
  for (size_t i = 0; i < list.size(); ++i) {
    line += i == 0 ? "" : i + 1 == list.size() ? " and " : ", ";
    line += list[i];
  }
  return line;
}

// The type as a word, and the default.
ordered_json TypeOf(const Option& option) {
  const OptimizeOptions fresh;
  const auto type = [](const char* name, ordered_json value) {
    return ordered_json{{"type", name}, {"default", std::move(value)}};
  };
  struct Visitor {
    const OptimizeOptions& fresh;
    decltype(type) of;
    ordered_json operator()(bool OptimizeOptions::* f) const { return of("flag", fresh.*f); }
    ordered_json operator()(int OptimizeOptions::* f) const { return of("count", fresh.*f); }
    ordered_json operator()(std::optional<double> OptimizeOptions::*) const { return of("number", nullptr); }
    ordered_json operator()(std::string OptimizeOptions::* f) const { return of("name", fresh.*f); }
    ordered_json operator()(std::vector<std::string> OptimizeOptions::*) const { return of("names", nullptr); }
    ordered_json operator()(quant::Calibrator OptimizeOptions::* f) const { return of("name", Name(fresh.*f)); }
  };
  return std::visit(Visitor{fresh, type}, option.field);
}

std::vector<Option> MakeOptions() {
  return {
      RecipeOption(),
      {.name = "calibrator",
       .field = &OptimizeOptions::calibrator,
       .what = "how a range is chosen from what was seen",
       .when = "comparing with other tools",
       .recipes = {"int8", "fp8"},
       .acts = {"calibrate"},
       .allowed = {"minmax", "moving_average", "percentile", "entropy", "mse"}},
      {.name = "fit",
       .field = &OptimizeOptions::fit,
       .what = "weights get the codes nearest to them, where with {calibration} they would get codes that make up for "
               "each other's errors on its data: saves a run of the data, for large models two to four",
       .when = "set-up time matters",
       .recipes = {"int8", "fp8", "dynamic", "dynamic4", "weights4"},
       .acts = {"fit_weights", "dynamic4", "weights4"}},
      {.name = "reduce_range",
       .field = &OptimizeOptions::reduce_range,
       .what = "int8 weights use 7 of their 8 bits: products a quarter faster on CPUs without VNNI, weights half as "
               "precise",
       .in_python = "Sums are then right in runtimes that saturate there.",
       .when = "on AVX2; also where ONNX Runtime will run the file on such a CPU, since its sums saturate there "
               "without it",
       .recipes = {"int8", "dynamic"},
       .acts = {"reduce_range"},
       .adds = {.pass = "reduce_range",
                .places = {"smooth", "fit_weights", "dynamic"},
                .refusal = "reduce_range is for weights that octavo quantizes to int8: leave it out, or use the "
                           "recipes int8 and dynamic of a float graph"}},
      {.name = "quantize_kv_cache",
       .field = &OptimizeOptions::quantize_kv_cache,
       .what = "past keys and values enter, and present ones leave, as the 8-bit codes that attention reads: a quarter "
               "of the bytes, the same results",
       .in_python = "Session.caches and the file's metadata \"octavo.caches\" have scale and zero point.",
       .when = "decoders; a token of GPT-2 takes a third less, of a Llama with four kv heads a seventh less",
       .recipes = {"int8", "fp8"},
       .acts = {"quantize_caches"},
       .adds = {.pass = "quantize_caches",
                .places = {"quantize", "quantize_fp8"},
                .behind = true,
                .refusal = "caches become codes by the ranges of a calibration: leave quantize_kv_cache out, or use "
                           "the recipes int8 and fp8 of a float graph"}},
      {.name = "keep_float",
       .field = &OptimizeOptions::keep_float,
       .what = "a Linear, attention core or table that is not quantized, by its name in the table of results; * and ? "
               "stand for letters",
       .in_python = "Names are those of report[\"candidates\"].",
       .when = "one layer is the culprit",
       .recipes = {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"},
       .word = "NODE"},
      {.name = "dynamic",
       .field = &OptimizeOptions::dynamic,
       .what = "a Linear whose activations recipe int8 quantizes at run time, with a scale and zero point a row, "
               "instead of one scale for all: nearer to float and about as fast; named as in {keep_float}",
       .when = "one scale for all rows does harm to a layer",
       .recipes = {"int8"},
       .acts = {"dynamic"},
       .word = "NODE"},
      {.name = "min_db",
       .field = &OptimizeOptions::min_db,
       .what =
           "decibels that every output keeps against the model as it was on {held_out} samples of {calibration}: the "
           "layers that lose most become dynamic (recipe int8), then float, as few as it takes",
       .in_python = "report[\"layers\"] has the \"type\" of each, report[\"dynamic\"] and report[\"keep_float\"] the "
                    "names. OctavoError where float does not keep them either.",
       .when = "a fixed accuracy is asked for",
       .recipes = {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"},
       .most = 200,
       .word = "DB"},
      {.name = "min_cosine",
       .field = &OptimizeOptions::min_cosine,
       .what = "cosine that the rows of every output keep on the mean ((1 + R^2) / 2 of outputs of one number a row), "
               "else as "
               "{min_db}",
       .when = "embeddings: 0.999 keeps neighbours",
       .recipes = {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"},
       .most = 1,
       .word = "COSINE"},
      {.name = "max_kl",
       .field = &OptimizeOptions::max_kl,
       .what =
           "Kullback-Leibler divergence that the rows of logits or probabilities lose at most on the mean, in nats, "
           "else as {min_db}",
       .in_python = "OctavoError where no output has such rows.",
       .when = "decoders and classifiers: 0.01 is a hundredth of a perplexity",
       .recipes = {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"},
       .most = 100,
       .word = "KL"},
      {.name = "bits",
       .field = &OptimizeOptions::bits,
       .what = "bits that a weight's codes have on the mean, 4 to 8: those Linears that lose most by 4 bits get 8, by "
               "what their products lose on {calibration}, without data by what their weights lose",
       .in_python = "report[\"notes\"] says how many do, the log which.",
       .when = "4 bits lose too much, and 8 are too large",
       .recipes = {"dynamic4", "weights4"},
       .acts = {"dynamic4", "weights4"},
       .least = 4,
       .most = 8,
       .word = "BITS"},
      {.name = "layers",
       .field = &OptimizeOptions::layers,
       .what =
           "tell which layers lose most: with {calibration}, its {held_out} samples run once for each, quantized alone",
       .in_python = "report[\"layers\"] has them.",
       .when = "before {keep_float}",
       .recipes = {"int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"}},
      {.name = "held_out",
       .field = &OptimizeOptions::held_out,
       .what =
           "samples of {calibration} (rows of its batches where these stand alone, else batches), spread over it, that "
           "neither calibration nor fitting sees, so that the loss told is that of new data; -1 is an eighth, none of "
           "fewer than eight; 0 tells the loss of the first eight rows or one batch, which were seen",
       .when = "data is scarce (0), or the loss shall be told more surely",
       .least = -1,
       .most = 1000000,
       .word = "N"},
      {.name = "calibrate_with",
       .field = &OptimizeOptions::calibrate_with,
       .what = "what runs the model on {calibration}: octavo, onnxruntime, or the path of a libonnxruntime.so; a note "
               "says whether octavo will run the file",
       .in_python = "onnxruntime is the installed package, if there is one.",
       .when = "the model has an op that octavo lacks (`octavo inspect` names it)",
       .word = "RUNTIME"},
      {.name = "threads",
       .field = &OptimizeOptions::threads,
       .what = "threads for calibration, 0 for all; the file does not depend on it",
       .when = "other work shares the CPU",
       .most = 1024},
  };
}

}  // namespace

const std::vector<Option>& Options() {
  static const auto* const options = new std::vector<Option>(MakeOptions());
  return *options;
}

std::vector<const Option*> AddingOptions(const OptimizeOptions& options) {
  std::vector<const Option*> given;
  for (const Option& option : Options()) {
    const auto* flag = std::get_if<bool OptimizeOptions::*>(&option.field);
    if (flag != nullptr && !option.adds.pass.empty() && options.*(*flag)) given.push_back(&option);
  }
  return given;
}

OptimizeOptions WithoutAdded(OptimizeOptions options) {
  for (const Option* option : AddingOptions(options)) options.*std::get<bool OptimizeOptions::*>(option->field) = false;
  return options;
}

std::string FlagOf(const Option& option) {
  std::string flag = (IsOn(option) ? "--no-" : "--") + std::string(option.name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string HelpOf(const Option& option) {
  std::string help;
  for (std::string_view rest = option.what; !rest.empty();) {
    const size_t open = std::min(rest.find('{'), rest.size());
    help += rest.substr(0, open);
    if (open == rest.size()) break;
    const size_t close = rest.find('}', open);
    help += FlagOfName(rest.substr(open + 1, close - open - 1));
    rest.remove_prefix(close + 1);
  }
  const std::string recipes = RecipesOf(option);
  return recipes.empty() ? help : std::format("{} ({})", help, recipes);
}

std::string OptionsJson() {
  ordered_json options = ordered_json::array();
  for (const Option& o : Options()) {
    ordered_json j{{"name", o.name}, {"flag", FlagOf(o)}};
    j.update(TypeOf(o));
    j.update({{"what", o.what}, {"in_python", o.in_python}, {"when", o.when}, {"recipes", RecipesOf(o)}});
    j.update({{"acts", o.acts}, {"allowed", o.allowed}, {"word", o.word}, {"on", IsOn(o)}});
    options.push_back(std::move(j));
  }
  ordered_json arguments = ordered_json::object();
  for (const auto& [argument, flag] : kArguments) arguments[std::string(argument)] = flag;
  return ir::Dump(ordered_json{{"options", options}, {"arguments", arguments}}, 1);
}

ir::Status SetPassOptions(const std::vector<std::string>& settings, OptimizeOptions& options) {
  passes::Pipeline beside;
  passes::Pipeline& pipeline = options.pipeline ? *options.pipeline : beside;
  for (const std::string& one : settings) {
    const size_t dot = one.find('.');
    if (dot == std::string::npos)
      return ir::Fail("set takes PASS.OPTION=VALUE, as in weights4.block=64, not {}", ir::Quoted(one));
    OCTAVO_TRY_STATUS(SetOption(RegistryOf(options), one.substr(0, dot), one.substr(dot + 1), pipeline));
  }
  options.pass_options = std::move(beside.options);
  return {};
}

}  // namespace octavo::api
