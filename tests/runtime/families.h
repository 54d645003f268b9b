// One graph for each family of kernels that the runtime has, with random constants, for the tests that must not miss one: the law, the
// stress test. Sizes of inputs are random too.
#ifndef OCTAVO_TESTS_RUNTIME_FAMILIES_H_
#define OCTAVO_TESTS_RUNTIME_FAMILIES_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::runtime::testing {

// Sizes that a run may choose.
struct Sizes {
  int64_t batch = 1, rows = 1, keys = 1;
  bool operator==(const Sizes&) const = default;
};
inline constexpr int64_t kBatch = -1, kRows = -2, kKeys = -3;  // in the dims of an input

// What a graph declares of its inputs: dims by number and name, the rank, the dtype alone.
enum class Knowledge : uint8_t { kDims, kRank, kDtype };

// Adds the nodes of several families to one graph; every name begins with that of its family.
class Maker {
 public:
  explicit Maker(uint32_t seed, Knowledge knowledge = Knowledge::kDims) : gen_(seed), knowledge_(knowledge) {
    graph.info.opsets[""] = 24;
  }

  // Values from lo to hi; of codes their bits.
  ir::ValueId Input(const std::string& name, ir::DType dtype, ir::Shape dims, double lo, double hi);
  ir::ValueId Constant(ir::DType dtype, ir::Shape shape, double lo, double hi);
  ir::ValueId Number(float value) { return graph.AddConstant(ir::Tensor::ScalarF32(value)); }
  ir::ValueId Node(ir::Op op, std::vector<ir::ValueId> in, ir::Attrs attrs = {}, size_t outputs = 1);
  void Output(ir::ValueId value);
  // Of scale and zero point.
  void Codes(std::vector<ir::ValueId>& in, ir::DType dtype, float scale, int zero);

  ir::TensorMap Inputs(const Sizes& sizes, std::mt19937& gen) const;

  ir::Graph graph;
  std::string family;  // of the nodes to come
  // What stands between an input and its readers; none: nothing.
  std::function<ir::ValueId(ir::Graph& graph, ir::ValueId input)> through;

 private:
  struct Source {
    std::string name;
    ir::DType dtype;
    ir::Shape dims;
    double lo, hi;
  };
  std::mt19937 gen_;
  Knowledge knowledge_;
  std::vector<Source> sources_;
};

struct Family {
  std::string name;
  std::string kernel;  // what the name of its kernel begins with; of the one that gives it its name
  std::function<void(Maker&)> add;
};
const std::vector<Family>& Families();

}  // namespace octavo::runtime::testing

#endif  // OCTAVO_TESTS_RUNTIME_FAMILIES_H_
