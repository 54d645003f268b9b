// Data to calibrate with and to compare on: a stream of batches, each a full set of model inputs, checked.
#ifndef OCTAVO_QUANT_DATASET_H_
#define OCTAVO_QUANT_DATASET_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::quant {

struct InputSpec {
  std::string name;
  ir::Type type;
};
std::vector<InputSpec> InputsOf(const ir::Graph& graph);
// "a, b, c" for a sentence that says what there is; the first thousand letters or so.
std::string NamesOf(const std::vector<InputSpec>& inputs);
// Rows of the tables that graph inputs index, by way of Reshape, Cast and the like too: RandomOptions::limits, so that random ids stay
// below them.
std::map<std::string, int64_t> IdLimits(const ir::Graph& graph);

struct Batch {
  std::string name;  // of the file, or "batch 3"
  ir::TensorMap inputs;
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  // nullopt after the last batch.
  virtual ir::Result<std::optional<Batch>> Next() = 0;
  // Back to the first batch. The same batches come again.
  virtual void Rewind() = 0;
  // Number of batches.
  virtual int64_t size() const = 0;
  // "12 batches from 'calib/'", "8 random batches": for reports.
  virtual std::string Describe() const = 0;
  virtual bool random() const { return false; }
};

// One .onnx test tensor file (TensorProto): its name and contents. ir/onnx/tensor_file.h has one.
using TensorFileReader =
    std::function<ir::Result<std::pair<std::string, ir::Tensor>>(const std::filesystem::path&, const ir::Limits&)>;

struct RandomOptions {
  // Ids of input X are drawn below limits["X"] (rows of the table that it indexes); 1000 where nothing is known.
  std::map<std::string, int64_t> limits = {};
  std::map<std::string, int64_t> dims =
      {};  // sizes of symbols; others: 4 where the symbol is a first dim, else 8 to 32
  uint64_t seed = 1;
  ir::Limits memory = {};  // of a batch
};

struct DataOptions {
  TensorFileReader read_tensor_file = {};  // needed for test_data_set_* folders
  RandomOptions random = {};
  ir::Limits limits = {};  // of a batch
};

// What --calib and --data take: a folder of .npz files (by name; one batch each, arrays named as the inputs), one .npz
// file, a folder of ONNX test_data_set_* folders (input_N.pb, in the order of the model's inputs, or by name where
// every tensor bears an input's name), one such folder, or "random:N". Every batch is checked by FitInputs.
ir::Result<std::unique_ptr<DataSource>> OpenData(const std::string& where, std::vector<InputSpec> inputs,
                                                 const DataOptions& options = {});
// Batches in memory.
std::unique_ptr<DataSource> InMemoryData(std::vector<ir::TensorMap> batches, std::vector<InputSpec> inputs);
// Every count-th batch from the one at `index` (0 to count - 1) on: what one of `count` machines calibrates on, each a part that no other has.
std::unique_ptr<DataSource> ShardOf(std::unique_ptr<DataSource> data, int64_t index, int64_t count);
// Calibration::shard of that: "2/8", empty where it is the whole.
std::string ShardName(int64_t index, int64_t count);
// How a source falls into samples: rows of its batches, where these stand alone (rows.h), else its batches.
struct Samples {
  std::vector<int64_t> of_batch;  // 1 where it is a sample itself
  bool are_rows = false;
  int64_t number() const;
};
// Whether a sample is one of `held` of the `size`: one of each stretch of them, since data is often sorted by length.
bool IsHeldOut(int64_t sample, int64_t size, int64_t held);
// The samples of `data`, which outlives it, that are wanted, up to `most` of one batch together. It moves the place of `data`, so rewind before reading
// another part.
std::unique_ptr<DataSource> PartOf(DataSource& data, Samples samples, const std::function<bool(int64_t sample)>& wanted,
                                   int64_t most = std::numeric_limits<int64_t>::max());
// N plausible batches, the same on every machine: ids uniform below their limit, masks of ones with some padding at the
// end, token types 0 and 1, positions counting up, floats roughly N(0, 1).
ir::Result<std::unique_ptr<DataSource>> RandomData(int64_t batches, std::vector<InputSpec> inputs,
                                                   const RandomOptions& options = {});

// The arrays as the model wants them, or a sentence that names `place` and the array: an input is missing, an array is
// no input, wrong type, rank or fixed dim, two dims of one symbol differ, a NaN (unless kMayBeNaN: what a run is given means
// what the model says, and a cache has rows that nobody has written yet). Conversions that lose nothing are
// done: integers and bools to a wider integer type (to a narrower one if every value fits), f16/bf16 to f32, f64 to f32
// and f32 to f16/bf16 if every value is exactly representable.
enum class Numbers : uint8_t { kMustBe, kMayBeNaN };
ir::Result<ir::TensorMap> FitInputs(ir::TensorMap arrays, const std::vector<InputSpec>& inputs, std::string_view place,
                                    Numbers numbers = Numbers::kMustBe);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_DATASET_H_
