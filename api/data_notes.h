// Signs that calibration data is not what the model will get. For api/ alone.
#ifndef OCTAVO_API_DATA_NOTES_H_
#define OCTAVO_API_DATA_NOTES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"
#include "octavo/quant/calibrate.h"

namespace octavo::api {

// What inputs were given, over all batches.
struct DataSeen {
  int64_t batches = 0, ids = 0;
  bool padded = false;
  using Sizes = std::map<std::string, std::pair<int64_t, int64_t>>;  // by symbol behind the first dim: least and most
  Sizes lengths, others;                                             // of ids; of other inputs
  std::map<std::string, int64_t> largest;                            // id, by input
  void Add(const ir::Graph& graph, const ir::TensorMap& inputs);
};

// Sentences for a person: ids of few of a table's rows, texts of one length, other inputs of one size, activations and channels that never change.
std::vector<std::string> NotesOfData(const ir::Graph& graph, const DataSeen& seen, const quant::Calibration& ranges);

}  // namespace octavo::api

#endif  // OCTAVO_API_DATA_NOTES_H_
