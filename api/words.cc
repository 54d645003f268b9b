#include "octavo/api/words.h"

#include <format>

#include "octavo/api/options.h"

namespace octavo::api {

std::vector<std::pair<std::string, std::string>> WordsOfProgram() {
  std::vector<std::pair<std::string, std::string>> words{
      {"calibration=", "--calib"},
      {"octavo.calibrate(moments=True)", "`octavo calibrate --moments`"},
      {"octavo.explain(model)", "`octavo explain FILE`"},
      {"octavo.compare", "`octavo compare`"},
      {"print(octavo.Graph(model))", "`octavo print FILE`"},
      {"octavo.optimize(model)", "`octavo optimize FILE -o OUT`"},
      {"octavo.text_batches", "--calib-text"},
      {"octavo.image_batches", "--calib-images"},
      {"max_memory", "--max-memory"},
      {"max_nodes", "--max-nodes"},
      {"moments=True", "--moments"},
      {"split_if", "--split-if"},
      {"assume", "--assume"},
      {"set", "--set"},
      {"fit=False", "--no-fit"},
      {"numa_node", "--numa-node"}};
  for (const Option& option : Options()) {
    words.emplace_back(std::format("{}=", option.name), FlagOf(option));
    words.emplace_back(option.name, FlagOf(option));
  }
  return words;
}

}  // namespace octavo::api
