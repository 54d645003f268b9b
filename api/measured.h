// What optimization gained on this machine: the model as it was and the one that was made of it run on the same inputs, in turn.
#ifndef OCTAVO_API_MEASURED_H_
#define OCTAVO_API_MEASURED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/json.h"
#include "octavo/runtime/profile.h"

namespace octavo::api {

struct Measured {
  struct Side {
    double ms = 0, low = 0, high = 0;  // median, and the runs at a tenth and nine tenths
    int64_t runs = 0;
    int64_t peak_bytes = 0;                    // of a process that opens the file and runs it once; 0: not known
    std::vector<runtime::ProfileEvent> steps;  // each as in the median of five runs more
  };
  Side before, after;
  std::string shapes;   // of the inputs
  int64_t samples = 1;  // that a run computes
  int threads = 0;
  bool random = false;  // the inputs
};

struct MeasureOptions {
  int threads = 0;
  double seconds = 1;  // for each; the fewest runs are three
  std::function<bool()> interrupted = {};
};
// before: as it came, which is fused in floats as it would be when a session opens it. random: said of the inputs.
ir::Result<Measured> Measure(ir::Graph before, ir::Graph after, const ir::TensorMap& inputs, bool random,
                             const MeasureOptions& options = {});

// As cli/JSON.md says.
nlohmann::ordered_json ToJson(const Measured& measured);

}  // namespace octavo::api

#endif  // OCTAVO_API_MEASURED_H_
