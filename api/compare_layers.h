// Which value of a model stands for which of another that octavo made of it, by provenance. For api/ alone.
#ifndef OCTAVO_API_COMPARE_LAYERS_H_
#define OCTAVO_API_COMPARE_LAYERS_H_

#include <optional>
#include <string>
#include <vector>

#include "octavo/api/compare.h"

namespace octavo::api {

struct Codes {
  double scale, zero, lo, hi;  // lo, hi: of what they stand for
};
// Of an output of one of octavo's own ops that is codes of one scale; nothing: it is not.
std::optional<Codes> CodesOf(const ir::Graph& graph, const ir::Node& node, size_t output);

class LayerPairs {
 public:
  // Every op of octavo's own in b, and every product, with the values of its sources in a; these become outputs of both graphs.
  LayerPairs(ir::Graph& a, ir::Graph& b);

  // Takes the outputs that the constructor added out of both maps and adds them up. `inputs`: of the batch, whose mask says what is padding.
  ir::Status Add(const ir::TensorMap& inputs, ir::TensorMap& want, ir::TensorMap& got);
  // Worst first. What no value of a has the shape of is left out.
  std::vector<LayerDifference> Differences() const;

 private:
  // Of a channel, the last axis: w of a, y of b.
  struct Channel {
    double n = 0, w = 0, y = 0, ww = 0, wy = 0, yy = 0;
  };
  // What no other layer sees, and so is no loss: channels that are multiples of those of a (the pass `smooth`, whose readers have the weights for it),
  // or less a constant (`center_keys`: Softmax does not see it).
  enum class Fit : uint8_t { kNone, kMultiples, kShift };
  // Columns of a packed product (q, k and v of one Linear): `run` that lie together, then others' of the same number; 0: not known yet.
  struct Part {
    int64_t run = 0, first = 0;
  };
  struct Sums {
    std::vector<Channel> channels = {};
    int64_t count = 0, clipped = 0, flushed = 0;
    bool finite = true;
    Part part = {};  // which of a are those of b; of a product that is as wide, all
    void Add(const ir::Tensor& want, const ir::Tensor& got, const std::optional<Codes>& codes);
    // The columns of `want` that are most like `got`, by the first rows that come.
    void AddPart(const ir::Tensor& want, const ir::Tensor& got, const std::optional<Codes>& codes);
    double Db(Fit fit) const;
    double Cosine(Fit fit) const;
  };
  struct Pair {
    std::string op;
    std::string got = {};                            // output of b
    std::vector<std::string> want = {}, names = {};  // outputs of a, one of which it is, and how they are called
    Fit fit = Fit::kNone;                            // where that leaves much less
    std::optional<Codes> codes = {};
    std::vector<size_t> before = {};  // pairs whose values it reads
    std::vector<Sums> sums = {};
  };
  std::vector<Pair> pairs_;
};

}  // namespace octavo::api

#endif  // OCTAVO_API_COMPARE_LAYERS_H_
