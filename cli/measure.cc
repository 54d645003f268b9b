#include "octavo/cli/measure.h"

#include "octavo/api/bench.h"
#include "octavo/api/peak.h"
#include "octavo/cli/cli.h"

namespace octavo::cli {

ir::Result<api::Measured> MeasureHere(ToMeasure what, const ir::Graph& made) {
  ir::TensorMap inputs;
  if (what.data != nullptr) {
    what.data->Rewind();
    OCTAVO_TRY(auto batch, what.data->Next());
    if (batch) inputs = std::move(batch->inputs);
  }
  const bool random = inputs.empty() || what.data->random();
  if (inputs.empty()) {
    OCTAVO_TRY(inputs, api::RandomInputs(what.came, {}));
  }
  const auto interrupted = [] { return Interrupted().load(); };
  OCTAVO_TRY(api::Measured measured,
             api::Measure(std::move(what.came), made, inputs, random, {.interrupted = interrupted}));
  api::MeasurePeaks({.program = "/proc/self/exe", .before = what.before, .after = what.after}, inputs, interrupted,
                    measured);
  return measured;
}

}  // namespace octavo::cli
