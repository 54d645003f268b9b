// How far the outputs of two models are apart: what `octavo compare` and octavo.compare() call.
#ifndef OCTAVO_API_COMPARE_H_
#define OCTAVO_API_COMPARE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/ir/json.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/error.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

struct CompareOptions {
  std::string a = "the first model", b = "the second model";  // for sentences
  int threads = 0;
  bool layers = false;  // the values within, too: b was made of a
  // Opens the batches for the inputs of a graph. Floats fit both models where only one of them takes codes.
  std::function<ir::Result<std::unique_ptr<quant::DataSource>>(const ir::Graph&)> open_data = {};
  std::function<void(std::string_view stage, int64_t done, int64_t total)> progress = {};
  std::function<bool()> interrupted = {};  // true: the comparison ends with what it has
};

// A value of b that octavo made of a, against that of a: matched by the source names that files keep (octavo.origin).
struct LayerDifference {
  std::string node = {}, op = {};  // source name, op in b
  int64_t elements = 0;            // without padding
  double sqnr_db = 0, cosine = 1;
  bool fitted =
      false;  // channels of b are multiples of those of a, or less a constant, which no other layer sees: left out
  double enters_db = 0;             // the worst of the layers that it reads; infinite: none of them
  double own_db = 0;                // what it adds to that, as decibels of its own values
  double clipped = 0, flushed = 0;  // shares: beyond the range of its codes, and 0 in b alone; 0 where it has no codes
};
// In words, empty: none.
std::string AdviceFor(const LayerDifference& difference);

struct Comparison {
  std::map<std::string, quant::ErrorStats> outputs;  // of b against a; of [b, s, ...] without padding
  std::vector<LayerDifference> layers;               // CompareOptions::layers: most loss of its own first
  int64_t batches = 0;
};
ir::Result<Comparison> Compare(ir::Graph a, ir::Graph b, const CompareOptions& options);

// The layers alone, where both models take floats: on a few rows of a batch, which takes a fraction of what calibration did. Empty where they cannot be compared.
std::vector<LayerDifference> LayersOn(ir::Graph a, ir::Graph b, ir::TensorMap inputs,
                                      const runtime::CompileOptions& how);

// As cli/JSON.md says.
nlohmann::ordered_json ToJson(const Comparison& comparison);

}  // namespace octavo::api

#endif  // OCTAVO_API_COMPARE_H_
