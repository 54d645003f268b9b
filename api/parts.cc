#include "octavo/api/parts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "octavo/quant/rows.h"

namespace octavo::api {

using ir::Graph;
using ir::Result;

namespace {

constexpr int64_t kSeen = 8;  // samples that are measured on where none is held out, which calibration saw
constexpr int64_t kAtOnce =
    4;  // rows: MiniLM takes as long for 32 as for 8 times 4, and 1.2 to 2 times that one by one

// No batch of a fixed size, whose rows cannot be left out.
bool MayHaveRows(const Graph& model) {
  const auto has_rows = [&model](ir::ValueId input) {
    const auto& shape = model.value(input).type.shape;
    return shape && !shape->empty() && !shape->front().is_number();
  };
  return !model.inputs().empty() && std::ranges::all_of(model.inputs(), has_rows);
}

// Whether two rows of a batch stand alone. False, too, where the model does not run: whoever needs it to says so.
bool StandAlone(const Graph& model, const ir::TensorMap& inputs, int64_t rows, const OptimizeOptions& options) {
  const Result<GraphRun> run = RunOf(model, options);
  return run && quant::RowsStandAlone(
                    inputs, rows, [&](const ir::TensorMap& in) { return NamedOutputs(*run, model, {}, in); }, false);
}

// The first `most` or more.
Result<quant::Samples> Count(const Graph& model, const OptimizeOptions& options, int64_t most) {
  quant::DataSource& data = *options.data;
  quant::Samples rows{.of_batch = {}, .are_rows = MayHaveRows(model)};
  int64_t batches = 0, number = 0;
  data.Rewind();
  // A source that does not know its size is an iterator of Python, which keeps what it gives.
  for (bool asked = false; (rows.are_rows || data.size() < 0) && number < most; ++batches) {
    OCTAVO_TRY(const auto batch, data.Next());
    if (!batch) break;
    if (rows.are_rows) {
      const ir::Tensor& first = batch->inputs.begin()->second;
      const int64_t size = first.rank() > 0 ? first.shape()[0] : 0;
      rows.are_rows = quant::HaveRows(batch->inputs, size) &&
                      (asked || size < 2 || StandAlone(model, batch->inputs, size, options));
      asked = asked || size >= 2;
      rows.of_batch.push_back(size);
      number += size;
    }
  }
  if (rows.are_rows) return rows;
  return quant::Samples{std::vector<int64_t>(static_cast<size_t>(std::max(data.size(), batches)), 1), false};
}

}  // namespace

Result<Parts> PartsOf(const Graph& model, const OptimizeOptions& options, Evidence& evidence) {
  Parts parts;
  if (options.data == nullptr) return parts;
  if (!evidence.cut) {
    const int64_t most = options.held_out == 0 ? kSeen : std::numeric_limits<int64_t>::max();
    OCTAVO_TRY(evidence.cut, Count(model, options, most));
  }
  const quant::Samples& cut = *evidence.cut;
  const int64_t size = cut.number(), held = HeldOutOf(size, options.held_out);
  const auto is_held = [=](int64_t sample) { return quant::IsHeldOut(sample, size, held); };
  if (held > 0) parts.seen = quant::PartOf(*options.data, cut, std::not_fn(is_held));
  const int64_t seen = cut.are_rows ? kSeen : 1;
  parts.measured = held > 0 ? quant::PartOf(*options.data, cut, is_held, kAtOnce)
                            : quant::PartOf(*options.data, cut, [=](int64_t s) { return s < seen; }, kAtOnce);
  return parts;
}

}  // namespace octavo::api
