// How far the outputs of two models are apart: what `octavo compare` and octavo.compare() call.
#ifndef OCTAVO_API_COMPARE_H_
#define OCTAVO_API_COMPARE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "octavo/ir/json.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/error.h"

namespace octavo::api {

struct CompareOptions {
  std::string a = "the first model", b = "the second model";  // for sentences
  int threads = 0;
  // Opens the batches for the inputs of a graph. Floats fit both models where only one of them takes codes.
  std::function<ir::Result<std::unique_ptr<quant::DataSource>>(const ir::Graph&)> open_data = {};
  std::function<void(std::string_view stage, int64_t done, int64_t total)> progress = {};
  std::function<bool()> interrupted = {};  // true: the comparison ends with what it has
};

struct Comparison {
  std::map<std::string, quant::ErrorStats> outputs;  // of b against a; of [b, s, ...] without padding
  int64_t batches = 0;
};
ir::Result<Comparison> Compare(ir::Graph a, ir::Graph b, const CompareOptions& options);

// As cli/JSON.md says.
nlohmann::ordered_json ToJson(const Comparison& comparison);

}  // namespace octavo::api

#endif  // OCTAVO_API_COMPARE_H_
