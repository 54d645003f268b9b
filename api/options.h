// The options of Optimize in one table. The program's flags, Python's arguments, its stub file and docs/recipes.md say of an option what
// its entry says.
#ifndef OCTAVO_API_OPTIONS_H_
#define OCTAVO_API_OPTIONS_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/api/optimize.h"
#include "octavo/passes/pipelines.h"

namespace octavo::api {

struct Option {
  // Where the value goes. Its type is the type of the option, what it is in a new OptimizeOptions the default.
  using Field = std::variant<bool OptimizeOptions::*, int OptimizeOptions::*, std::optional<double> OptimizeOptions::*,
                             std::string OptimizeOptions::*, std::vector<std::string> OptimizeOptions::*,
                             quant::Calibrator OptimizeOptions::*>;

  std::string_view name;  // as in Python; FlagOf makes the flag of it
  Field field;
  // Sentences name other options and arguments in braces: {keep_float}.
  std::string what;                            // of a flag that begins with --no-: what it is without the option
  std::string_view in_python = {};             // what a caller from Python should know besides
  std::string_view when = {};                  // when to choose it, for docs/recipes.md
  std::vector<std::string_view> recipes = {};  // that it is for; empty: all
  std::vector<std::string_view> acts = {};     // passes that it adds, takes out or reaches; empty: it acts around them
  std::vector<std::string_view> allowed = {};  // names; empty: any
  double least = 0, most = 0;                  // of numbers
  std::string_view word = {};                  // what help calls a value: NODE
  passes::AddedPass adds = {};                 // by a flag
};

// In the order in which help lists them.
const std::vector<Option>& Options();
// The flags that add a pass and are given; and the options without them.
std::vector<const Option*> AddingOptions(const OptimizeOptions& options);
OptimizeOptions WithoutAdded(OptimizeOptions options);
// "--keep-float"; "--no-fit" where the default is true.
std::string FlagOf(const Option& option);
// `what` with flags in place of the names in braces, then the recipes.
std::string HelpOf(const Option& option);
// The table as JSON, for Python and for the script that writes its stub file and docs/recipes.md.
std::string OptionsJson();

// Options of passes, as "weights4.block=64", into options.pipeline or beside the recipe. options.registry knows the passes.
ir::Status SetPassOptions(const std::vector<std::string>& settings, OptimizeOptions& options);

}  // namespace octavo::api

#endif  // OCTAVO_API_OPTIONS_H_
