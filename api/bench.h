// Times of models that take turns, so that a noisy neighbour hits all of them alike: what `octavo bench` and octavo.bench() call.
#ifndef OCTAVO_API_BENCH_H_
#define OCTAVO_API_BENCH_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/json.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

// One model with one thread count and one batch.
struct Timing {
  std::string model;
  int threads;
  runtime::Model compiled;
  ir::TensorMap inputs;
  std::vector<double> ms = {};                      // of each run
  std::map<std::string, double> ms_by_kernel = {};  // of one run more: where the milliseconds are
};

struct BenchOptions {
  double seconds = 3;  // for each
  // Rounds done of -1.
  std::function<void(std::string_view stage, int64_t done, int64_t total)> progress = {};
  std::function<bool()> interrupted = {};  // true: ends with what was measured
};
// Fills in the times of each; after an interruption there may be none.
ir::Status Bench(std::vector<Timing>& timings, const BenchOptions& options);

// Sizes of inputs by name, "input_ids=1x128"; several after commas, "input_ids=1x16,1x128", are several batches.
using Shapes = std::map<std::string, ir::Shape, std::less<>>;
ir::Result<std::vector<Shapes>> ParseShapes(const std::vector<std::string>& texts);
// A random batch in which these inputs have these sizes, and every symbol of theirs that size in all inputs.
ir::Result<ir::TensorMap> RandomInputs(const ir::Graph& graph, const Shapes& shapes);

// The q-th quantile, 0 where nothing was measured.
double Quantile(std::vector<double> values, double q);
// "input_ids 1x128, attention_mask 1x128".
std::string ShapesOf(const ir::TensorMap& inputs);
// Rows of the batch: the first size of the input that has most dims. A run computes so many samples.
int64_t RowsOf(const ir::TensorMap& inputs);
// As cli/JSON.md says; those without times are left out.
nlohmann::ordered_json ToJson(const std::vector<Timing>& timings);

}  // namespace octavo::api

#endif  // OCTAVO_API_BENCH_H_
