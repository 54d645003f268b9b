// How many values of a quantized model lie at an end of their range while it runs on what comes, and how many ids calibration did not reach: whether it
// has seen data like it.
#ifndef OCTAVO_API_CLIPPED_H_
#define OCTAVO_API_CLIPPED_H_

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/tensor.h"
#include "octavo/quant/ids.h"

namespace octavo::api {

// Of one tensor of codes with a scale that calibration chose. The code at an end stands for what lies there and for all that lies beyond.
struct Clipped {
  std::string value, node;  // node: what makes it, by its name in the source
  double lo = 0, hi = 0;    // the range
  int64_t low = 0, high = 0,
          count = 0;  // values at its ends, of how many; low is 0 where the range begins at 0, as that of ReLU does
};

// Of an input of ids, by what the file tells of its calibration. Padding is left out.
struct StrangeIds {
  std::string input;
  quant::IdRange range;
  int64_t below = 0, above = 0, count = 0;  // of those that runs were given
};

class ClipCounter {
 public:
  // The tensors become outputs of the graph, behind its own.
  explicit ClipCounter(ir::Graph& graph);
  size_t size() const { return taps_.size(); }
  // A sentence where the file's metadata tells of ids in a way that cannot be read: they are not counted then.
  const std::string& note() const { return note_; }
  // The outputs that the constructor added, of one run. From any thread.
  void Count(std::span<const ir::Tensor> codes);
  std::vector<Clipped> Counts() const;
  // Of the inputs of a run those that CountIds looks at. They share memory with `inputs`, so that a run may take these.
  ir::TensorMap IdsOf(const ir::TensorMap& inputs) const;
  void CountIds(const ir::TensorMap& ids);
  std::vector<StrangeIds> Ids() const;

 private:
  struct Tap {
    Clipped counts;
    uint8_t low, high;  // codes, as bytes
    bool counts_low;
  };
  std::vector<Tap> taps_;
  std::vector<StrangeIds> ids_;
  std::string note_;
  mutable std::mutex mutex_;
};

}  // namespace octavo::api

#endif  // OCTAVO_API_CLIPPED_H_
