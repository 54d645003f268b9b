// Which value of a model stands for which of another that octavo made of it, by provenance. For api/ alone.
#ifndef OCTAVO_API_COMPARE_LAYERS_H_
#define OCTAVO_API_COMPARE_LAYERS_H_

#include <optional>
#include <string>
#include <vector>

#include "octavo/api/compare.h"

namespace octavo::api {

class LayerPairs {
 public:
  // Every op of octavo's own in b, and every product, with the values of its sources in a; these become outputs of both graphs.
  LayerPairs(ir::Graph& a, ir::Graph& b);

  // Takes the outputs that the constructor added out of both maps and adds them up. `inputs`: of the batch, whose mask says what is padding.
  ir::Status Add(const ir::TensorMap& inputs, ir::TensorMap& want, ir::TensorMap& got);
  // Worst first. What no value of a has the shape of is left out.
  std::vector<LayerDifference> Differences() const;

 private:
  struct Codes {
    double scale, zero, lo, hi;  // lo, hi: of what they stand for
  };
  // Of a channel, the last axis: w of a, y of b.
  struct Channel {
    double ww = 0, wy = 0, yy = 0;
  };
  struct Sums {
    std::vector<Channel> channels = {};
    int64_t count = 0, clipped = 0, flushed = 0;
    bool finite = true;
    void Add(const ir::Tensor& want, const ir::Tensor& got, const std::optional<Codes>& codes);
    double Db(bool scaled) const;
    bool IsScaled() const;
    double Cosine(bool scaled) const;
  };
  struct Pair {
    std::string op;
    std::string got = {};                       // output of b
    std::vector<std::string> want = {}, names = {};  // outputs of a, one of which it is, and how they are called
    bool may_be_scaled = false;
    std::optional<Codes> codes = {};
    std::vector<size_t> before = {};  // pairs whose values it reads
    std::vector<Sums> sums = {};
  };
  std::optional<Codes> CodesOf(const ir::Graph& b, const ir::Node& node, size_t output) const;

  std::vector<Pair> pairs_;
};

}  // namespace octavo::api

#endif  // OCTAVO_API_COMPARE_LAYERS_H_
