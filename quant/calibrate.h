// Calibration: data through the model, an observer on every tapped value. Fixed memory whatever the amount of data; the
// result is the same, bit for bit, for every order of the samples and every way they are cut into batches, as long as
// the model itself gives a sample the same values in every batch, and the results of shards merge to that of the whole.
#ifndef OCTAVO_QUANT_CALIBRATE_H_
#define OCTAVO_QUANT_CALIBRATE_H_

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/ids.h"
#include "octavo/quant/moments.h"
#include "octavo/quant/observe.h"
#include "octavo/quant/range.h"
#include "octavo/quant/rows.h"

namespace octavo::quant {

// A float value to observe, and which of its elements are padding. Padded positions are left out: what a model computes
// there is garbage that nobody reads, and it depends on how the batch was padded.
//
// A sample is one row of the batch: the slice of axis `batch_axis` that belongs to it, 1/B of that axis (so [B*H, S, D]
// works). A value without that axis is one sample per batch. With a mask, the positions of `seq_axes` whose mask is 0
// are left out; with `flat`, axis 0 is B*S.
struct Tap {
  std::string value;
  std::string mask = {};  // name of a 2-D integer or bool input [B, S]; empty: no padding
  int batch_axis = 0;     // -1: none
  std::vector<int> seq_axes = {};
  bool flat = false;
  bool channels = false;  // also gather the range of every channel (last axis)
  bool moments = false;   // weights are fitted to its rows: for whoever gathers Calibration::moments
  bool by_sizes = false;  // find mask and axes by the sizes of each batch, see Calibrate
  // Also gets all rows (last axis) of `width` values that are no padding, some at a time, in the order of the data.
  std::function<void(std::span<const float> rows, size_t width)> rows = {};
};

// The tap of a value, from its symbolic shape and those of the inputs: the mask is the input whose dims are the value's
// batch and sequence dims, so a head count that happens to equal the sequence length is never taken for it. Where
// shapes are not known or the model has no such mask with a symbolic length: by sizes.
Tap MakeTap(const ir::Graph& graph, ir::ValueId value);
// An attention mask by its name ("attention_mask", "decoder_attention_mask", "input_mask", "mask") and form.
bool IsMask(std::string_view name, DType dtype, size_t rank);

// The mask of a batch that goes with values whose axes are found by sizes: the one there is, or of several the one called
// "attention_mask"; empty: none.
std::string OnlyMask(const ir::TensorMap& inputs);

class Calibration {
 public:
  std::string model;         // fingerprint of the model, made by the caller; empty: not known
  bool skip_padding = true;  // whether padded positions were left out
  bool random_data = false;  // part of the data was random: ranges mean little
  uint64_t samples = 0;      // of the data
  std::string shard = {};  // "2/8": of the batches that ShardOf gives; empty: of all, or of what shards were merged of
  std::map<std::string, Observer> values = {};
  std::map<std::string, Moments> moments =
      {};             // what weights are fitted to, where that was asked for: no part of Calibrate
  IdRanges ids = {};  // of the inputs that were asked for; none that a part of the data does not tell of

  const Observer* Find(std::string_view value) const;

  // As if the data of both had gone through one calibration. Refused for another model, other values, other treatment
  // of padding, or where one alone has moments.
  ir::Status Merge(const Calibration& other);
  // A sentence if this was gathered of another part of the data, whose samples are none that going on may pass over.
  ir::Status CheckShard(std::string_view wanted) const;
  // A sentence if this was made with another model.
  ir::Status CheckModel(std::string_view fingerprint) const;

  // The .calib format, version 2: a line "octavo calibration 2", a line of JSON that tells a reader what is inside, the
  // observers, a checksum. Same calibration, same bytes. The header of a shard's calibration names it. Version 3 has moments behind the observers and is written where there are some. Version 1,
  // which knows nothing of rows, is read too.
  std::string ToBytes() const;
  static ir::Result<Calibration> FromBytes(std::string_view bytes, std::string_view place);
  ir::Status Save(const std::filesystem::path& path) const;
  static ir::Result<Calibration> Load(const std::filesystem::path& path);
};

// A sentence that names the first path whose file one before has, by whatever path: merged, its batches would count twice.
ir::Status CheckEachOnce(std::span<const std::string> paths);

struct CalibrateOptions {
  std::string model = {};  // goes into Calibration::model
  bool skip_padding = true;
  std::vector<std::string> ids = {};    // inputs: Calibration::ids
  const Calibration* resume = nullptr;  // go on from here: as many samples of the data are passed over
  // The inputs are rows of one batch, and rows give what they would give in any other batch: a batch then runs in parts, the values of each of
  // which take most_bytes, or one row.
  bool in_rows = false;
  size_t most_bytes = size_t{64} << 20;  // they lie in the arena, as outputs, and idle in pools of other sizes at once
  // After each batch: batches done, batches in all (-1: not known).
  std::function<void(int64_t done, int64_t total)> progress = {};
  // Set from outside to end after the batch at hand; what was gathered so far is returned and can be resumed.
  const std::atomic<bool>* stop = nullptr;
};

// A tap by sizes: axis 0 is the batch axis where the batch size divides it. Where the batch has one mask [B, S] (of
// several, the one called "attention_mask"), [B, S] and [B, S, N] lose their padded rows, and so does [B*S, N].
// A NaN or infinity in a value is an error that names value, sample and batch.
ir::Result<Calibration> Calibrate(std::span<const Tap> taps, DataSource& data, const Runner& runner,
                                  const CalibrateOptions& options = {});

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_CALIBRATE_H_
