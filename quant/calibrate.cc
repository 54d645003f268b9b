#include "octavo/quant/calibrate.h"

#include <algorithm>
#include <format>
#include <optional>
#include <utility>

#include "octavo/ir/names.h"

namespace octavo::quant {

std::string OnlyMask(const ir::TensorMap& inputs) {
  std::string found;
  int number = 0;
  for (const auto& [name, t] : inputs) {
    if (!IsMask(name, t.dtype(), static_cast<size_t>(t.rank()))) continue;
    if (name == "attention_mask") return name;
    found = name;
    ++number;
  }
  return number == 1 ? found : "";
}

namespace {

using ir::Fail;
using ir::Result;
using ir::Status;
using ir::Tensor;

// Half-open intervals of indices along one axis.
using Runs = std::vector<std::pair<int64_t, int64_t>>;

int64_t BatchSize(const ir::TensorMap& inputs) {
  if (const std::string mask = OnlyMask(inputs); !mask.empty()) return inputs.at(mask).shape()[0];
  for (const auto& [name, t] : inputs) {
    if (t.rank() > 0) return t.shape()[0];
  }
  return 1;
}

Tap BySizes(const Tap& tap, const Tensor& t, const ir::TensorMap& inputs, int64_t batch) {
  Tap found{.value = tap.value, .batch_axis = -1, .channels = tap.channels, .rows = tap.rows};
  const ir::Shape& shape = t.shape();
  if (shape.empty() || batch == 0 || shape[0] % batch != 0) return found;
  found.batch_axis = 0;
  const std::string mask = OnlyMask(inputs);
  if (mask.empty()) return found;
  const int64_t length = inputs.at(mask).shape()[1];
  if ((shape.size() == 2 || shape.size() == 3) && shape[0] == batch && shape[1] == length) {
    found.seq_axes = {1};
    found.mask = mask;
  } else if (shape.size() >= 2 && shape[0] == batch * length) {
    found.flat = true;
    found.mask = mask;
  }
  return found;
}

// Where the mask's row is not 0, shifted by `shift`.
Runs KeptRuns(const Tensor& mask, int64_t row, int64_t shift) {
  Runs runs;
  const int64_t length = mask.shape()[1];
  for (int64_t i = 0; i < length; ++i) {
    if (mask.GetInt(row * length + i) == 0) continue;
    if (!runs.empty() && runs.back().second == shift + i) {
      ++runs.back().second;
    } else {
      runs.emplace_back(shift + i, shift + i + 1);
    }
  }
  return runs;
}

// Feeds one sample of a value, cut out by a list of runs for each axis, to an observer.
class SampleVisitor {
 public:
  SampleVisitor(const ir::Shape& shape, std::span<const float> values, Observer& observer, const Tap& tap)
      : shape_(shape), values_(values), observer_(observer), tap_(tap) {}

  std::vector<Runs>& keep() { return keep_; }

  // False at the first value that is not finite.
  bool Run() {
    last_ = -1;
    for (size_t i = 0; i < shape_.size(); ++i) {
      if (keep_[i] != Runs{{0, shape_[i]}}) last_ = static_cast<int>(i);
    }
    inner_ = 1;
    for (size_t i = last_ < 0 ? 0 : static_cast<size_t>(last_) + 1; i < shape_.size(); ++i) inner_ *= shape_[i];
    return last_ < 0 ? Feed(0, 1) : Visit(0, 0);
  }

 private:
  bool Visit(int axis, int64_t base) {
    const int64_t at = base * shape_[static_cast<size_t>(axis)];
    for (const auto& [begin, end] : keep_[static_cast<size_t>(axis)]) {
      if (axis == last_) {
        if (!Feed(at + begin, end - begin)) return false;
        continue;
      }
      for (int64_t i = begin; i < end; ++i) {
        if (!Visit(axis + 1, at + i)) return false;
      }
    }
    return true;
  }
  bool Feed(int64_t first, int64_t number) {
    const auto span = values_.subspan(static_cast<size_t>(first * inner_), static_cast<size_t>(number * inner_));
    if (observer_.Observe(span) >= 0) return false;
    // Whole rows only: where the last axis itself is cut (a mask along it), there are no channels.
    if (!shape_.empty() && last_ < static_cast<int>(shape_.size()) - 1) {
      const auto width = static_cast<size_t>(shape_.back());
      if (tap_.channels) observer_.ObserveChannels(span, width);
      if (tap_.rows) tap_.rows(span, width);
    }
    return true;
  }

  const ir::Shape& shape_;
  std::span<const float> values_;
  Observer& observer_;
  const Tap& tap_;
  std::vector<Runs> keep_;
  int last_ = -1;
  int64_t inner_ = 1;
};

// One batch of one tapped value.
class ValueObservation {
 public:
  // first_row: where the batch is a part of one, of that.
  ValueObservation(const Tap& tap, const Batch& batch, int64_t batch_size, uint64_t first_sample, int64_t first_row)
      : tap_(tap), batch_(batch), batch_size_(batch_size), first_sample_(first_sample), first_row_(first_row) {}

  Status Run(const Tensor& t, bool skip_padding, Observer& observer) {
    if (!IsFloat(t.dtype())) {
      return Fail("value '{}' is {}, only float values can be calibrated", tap_.value, Name(t.dtype()));
    }
    if (tap_.by_sizes) tap_ = BySizes(tap_, t, batch_.inputs, batch_size_);
    OCTAVO_TRY(const Tensor mask, Mask(t, skip_padding));
    std::vector<float> converted;
    if (t.dtype() != DType::kF32) converted = t.ToFloats();
    const auto values = t.dtype() == DType::kF32 ? t.as<float>() : std::span<const float>(converted);
    const int64_t samples = tap_.batch_axis < 0 ? 1 : batch_size_;
    for (int64_t s = 0; s < samples; ++s) {
      SampleVisitor visitor(t.shape(), values, observer, tap_);
      Keep(t, mask, s, visitor.keep());
      if (!visitor.Run()) return NotFinite(s, tap_.batch_axis < 0);
      observer.EndSample();
    }
    return {};
  }

 private:
  // The tap's mask, undefined if nothing is left out; checks that mask and value fit each other.
  Result<Tensor> Mask(const Tensor& t, bool skip_padding) const {
    const auto rank = static_cast<int>(t.rank());
    const auto misfit = [&](std::string_view why) {
      return Fail("value '{}' has shape {} in {}, which does not fit its tap: {}", tap_.value, ir::ToString(t.shape()),
                  batch_.name, why);
    };
    if (tap_.batch_axis >= rank) return misfit("it has no such batch axis");
    if (tap_.batch_axis >= 0 &&
        (batch_size_ == 0 || t.shape()[static_cast<size_t>(tap_.batch_axis)] % batch_size_ != 0)) {
      return misfit(std::format("the batch size {} does not divide axis {}", batch_size_, tap_.batch_axis));
    }
    if (tap_.mask.empty() || !skip_padding) return Tensor();
    const auto it = batch_.inputs.find(tap_.mask);
    if (it == batch_.inputs.end()) return misfit(std::format("there is no mask '{}'", tap_.mask));
    const Tensor& mask = it->second;
    if (!IsMask("mask", mask.dtype(), static_cast<size_t>(mask.rank())) || mask.shape()[0] != batch_size_) {
      return misfit(std::format("mask '{}' has shape {}", tap_.mask, ir::ToString(mask.shape())));
    }
    for (const int axis : tap_.seq_axes) {
      if (axis < 0 || axis >= rank || axis == tap_.batch_axis ||
          t.shape()[static_cast<size_t>(axis)] != mask.shape()[1]) {
        return misfit(std::format("axis {} is not as long as mask '{}'", axis, tap_.mask));
      }
    }
    if (tap_.flat && t.shape()[0] != mask.size()) return misfit("axis 0 is not batch times length");
    return mask;
  }

  void Keep(const Tensor& t, const Tensor& mask, int64_t sample, std::vector<Runs>& keep) const {
    for (const int64_t size : t.shape()) keep.push_back({{0, size}});
    if (tap_.batch_axis >= 0) {
      const auto axis = static_cast<size_t>(tap_.batch_axis);
      const int64_t part = t.shape()[axis] / batch_size_;
      keep[axis] = {{sample * part, (sample + 1) * part}};
    }
    if (!mask.defined()) return;
    if (tap_.flat) keep[0] = KeptRuns(mask, sample, sample * mask.shape()[1]);
    for (const int axis : tap_.seq_axes) keep[static_cast<size_t>(axis)] = KeptRuns(mask, sample, 0);
  }

  Status NotFinite(int64_t sample, bool whole) const {
    const auto number = first_sample_ + static_cast<uint64_t>(sample);
    return Fail("value '{}' has a NaN or infinity in {} ({}); look for it in the data, or leave the value unquantized",
                tap_.value, whole ? std::string("a batch") : std::format("sample {}", number),
                whole ? batch_.name : std::format("row {} of {}", first_row_ + sample, batch_.name));
  }

  Tap tap_;
  const Batch& batch_;
  int64_t batch_size_;
  uint64_t first_sample_;
  int64_t first_row_;
};

size_t BytesOf(const ir::TensorMap& tensors) {
  size_t bytes = 0;
  for (const auto& [name, t] : tensors) bytes += t.byte_size();
  return bytes;
}

// Data of before that tells nothing of an input's ids, as older files do, leaves nothing to add to.
void ObserveIds(const ir::TensorMap& inputs, const std::vector<std::string>& names, Calibration& into) {
  for (const std::string& name : names) {
    const IdRange reach = LookAtIds(inputs, name).reach;
    const auto known = into.ids.find(name);
    if (known != into.ids.end()) {
      known->second.Add(reach);
    } else if (into.samples == 0) {
      into.ids[name] = reach;
    }
  }
}

// Of what the runner gave. Gives the bytes of the values.
Result<size_t> ObserveBatch(std::span<const Tap> taps, const Batch& batch, int64_t first_row,
                            const Result<ir::TensorMap>& outputs, const CalibrateOptions& options, Calibration& into) {
  if (!outputs) {
    return Fail("calibration on {} failed: {}{}", batch.name, outputs.error().message,
                into.random_data ? "; random inputs need not fit together, so give real batches" : "");
  }
  const int64_t batch_size = BatchSize(batch.inputs);
  for (const Tap& tap : taps) {
    const auto out = outputs->find(tap.value);
    const auto in = batch.inputs.find(tap.value);
    if (out == outputs->end() && in == batch.inputs.end()) {
      return Fail("the model run for calibration gives no value '{}'", tap.value);
    }
    ValueObservation observation(tap, batch, batch_size, into.samples, first_row);
    OCTAVO_TRY_STATUS(observation.Run(out != outputs->end() ? out->second : in->second, options.skip_padding,
                                      into.values[tap.value]));
  }
  ObserveIds(batch.inputs, options.ids, into);
  into.samples += static_cast<uint64_t>(batch_size);
  return BytesOf(*outputs);
}

// A batch in parts of some rows, as many as their values have room for; whole where a model does not run a part, whatever it says of its inputs.
class Parts {
 public:
  Parts(std::span<const Tap> taps, const Runner& runner, const CalibrateOptions& options, Calibration& into)
      : taps_(taps), runner_(runner), options_(options), into_(into) {}

  // first: rows that were seen before.
  Status Observe(const Batch& batch, int64_t first) {
    const int64_t size = BatchSize(batch.inputs);
    const bool in_parts = (first > 0 || size > kProbe) && Measured(batch, size) &&
                          (first > 0 || Room(batch, size) < size) && RowsStandAlone(batch, size);
    if (!in_parts && first > 0)
      return Fail("cannot go on: the calibration ended within what is now {}; the data was cut into other batches then",
                  batch.name);
    if (!in_parts)
      return ObserveBatch(taps_, batch, 0, runner_(batch.inputs), options_, into_).transform([](size_t) {});
    while (first < size) {
      const int64_t rows = std::min(Room(batch, size), size - first);
      const Batch part = PartOf(batch, size, first, rows);
      OCTAVO_TRY(const size_t bytes, ObserveBatch(taps_, part, first, runner_(part.inputs), options_, into_));
      Took(part, bytes);
      first += rows;
    }
    return {};
  }

 private:
  static constexpr int64_t kProbe = 2;  // rows of which a model is asked what it makes of a part

  // Whether it is known what room values take. A model may run no part, whatever it says of its inputs.
  bool Measured(const Batch& batch, int64_t size) {
    if (!options_.in_rows || fails_ || !HaveRows(batch.inputs, size)) return false;
    if (per_byte_ > 0) return true;
    const Batch part = PartOf(batch, size, 0, kProbe);
    const auto values = runner_(part.inputs);
    if (values) Took(part, BytesOf(*values));
    fails_ = !values.has_value();
    return !fails_;
  }
  void Took(const Batch& part, size_t bytes) {
    constexpr double kLeast = 1e-9;
    per_byte_ = std::max({per_byte_, kLeast, double(bytes) / double(std::max<size_t>(1, BytesOf(part.inputs)))});
  }
  // Rows that there is room for.
  int64_t Room(const Batch& batch, int64_t size) const {
    const double row = per_byte_ * double(BytesOf(batch.inputs)) / double(size);
    return static_cast<int64_t>(std::clamp(double(options_.most_bytes) / std::max(row, 1e-9), 1.0, double(size)));
  }
  bool RowsStandAlone(const Batch& batch, int64_t size) {
    if (!stand_alone_) stand_alone_ = quant::RowsStandAlone(batch.inputs, size, runner_, true);
    return *stand_alone_;
  }
  static Batch PartOf(const Batch& batch, int64_t size, int64_t first, int64_t rows) {
    return {batch.name, RowsOf(batch.inputs, size, first, rows)};
  }

  std::span<const Tap> taps_;
  const Runner& runner_;
  const CalibrateOptions& options_;
  Calibration& into_;
  double per_byte_ = 0;  // of the values, for each of the inputs'; 0: not known
  bool fails_ = false;   // no part runs
  std::optional<bool> stand_alone_;
};

// A name that one of them lacks.
template <typename T>
std::string InOneAlone(const std::map<std::string, T>& a, const std::map<std::string, T>& b) {
  for (const auto& [name, value] : a) {
    if (!b.contains(name)) return name;
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name)) return name;
  }
  return {};
}

Status MergeRanges(const Calibration& from, Calibration& into) {
  if (into.model != from.model) {
    return Fail("calibrations of different models cannot be merged (fingerprints {} and {})", into.model, from.model);
  }
  if (into.skip_padding != from.skip_padding) {
    return Fail("calibrations that treat padding differently cannot be merged: one leaves it out, one does not");
  }
  if (const std::string one = InOneAlone(into.values, from.values); !one.empty())
    return Fail("value '{}' is in one of the calibrations only, they cannot be merged", one);
  for (auto& [name, observer] : into.values) observer.Merge(from.values.at(name));
  if (into.samples == 0) into.ids = from.ids;
  if (from.samples > 0) {
    std::erase_if(into.ids, [&](const auto& input) { return !from.ids.contains(input.first); });
    for (auto& [name, range] : into.ids) range.Add(from.ids.at(name));
  }
  if (into.shard != from.shard) into.shard.clear();
  into.samples += from.samples;
  into.random_data |= from.random_data;
  return {};
}

Result<Calibration> Start(std::span<const Tap> taps, const DataSource& data, const CalibrateOptions& options) {
  Calibration start{.model = options.model, .skip_padding = options.skip_padding, .random_data = data.random()};
  for (const Tap& tap : taps) start.values[tap.value];
  if (options.resume != nullptr) OCTAVO_TRY_STATUS(MergeRanges(*options.resume, start));
  return start;
}

}  // namespace

const Observer* Calibration::Find(std::string_view value) const {
  const auto it = values.find(std::string(value));
  return it == values.end() ? nullptr : &it->second;
}

Status Calibration::CheckModel(std::string_view fingerprint) const {
  if (model == fingerprint) return {};
  return Fail("this calibration was made with another model (fingerprint {}, this one has {}); calibrate again",
              model.empty() ? "unknown" : model, fingerprint);
}

Status Calibration::CheckShard(std::string_view wanted) const {
  if (shard == wanted) return {};
  const auto part = [](std::string_view s) {
    return s.empty() ? std::string("all batches") : std::format("shard {}", s);
  };
  return Fail("it was gathered of {}, not of {}: go on with the shard that it was begun with, or write to another file",
              part(ir::Clean(shard)), part(wanted));
}

Status Calibration::Merge(const Calibration& other) {
  if (moments.empty() != other.moments.empty()) {
    return Fail(
        "one of the calibrations has what weights are fitted to and the other does not; gather all of them with "
        "moments=True, or none");
  }
  if (const std::string one = InOneAlone(moments, other.moments); !one.empty())
    return Fail("the moments of value '{}' are in one of the calibrations only, they cannot be merged", one);
  OCTAVO_TRY_STATUS(MergeRanges(other, *this));
  for (auto& [name, ours] : moments) {
    if (const Status merged = ours.Merge(other.moments.at(name)); !merged)
      return Fail("the moments of value '{}' cannot be merged: {}", name, merged.error().message);
  }
  return {};
}

Result<Calibration> Calibrate(std::span<const Tap> taps, DataSource& data, const Runner& runner,
                              const CalibrateOptions& options) {
  OCTAVO_TRY(Calibration result, Start(taps, data, options));
  const auto stopped = [&options] { return options.stop != nullptr && options.stop->load(); };
  uint64_t pass_over = result.samples;
  Parts parts(taps, runner, options, result);
  data.Rewind();
  for (int64_t done = 0;; ++done) {
    if (stopped()) break;
    OCTAVO_TRY(const auto batch, data.Next());
    if (!batch) break;
    const auto size = static_cast<uint64_t>(BatchSize(batch->inputs));
    if (pass_over >= size) {
      pass_over -= size;
    } else {
      const Status seen = parts.Observe(*batch, static_cast<int64_t>(std::exchange(pass_over, 0)));
      if (!seen && stopped()) break;  // the run was interrupted: what was seen before it counts
      OCTAVO_TRY_STATUS(seen);
    }
    if (options.progress) options.progress(done + 1, data.size());
  }
  if (result.samples > 0) return result;
  if (stopped()) return Fail("calibration was interrupted before its first row: there is nothing to go on from");
  return Fail("there is no data to calibrate with: {}", data.Describe());
}

}  // namespace octavo::quant
