// Resize as sums along one axis after the other: shared by the interpreter, which adds in double, and the runtime.
#ifndef OCTAVO_IR_INTERPRET_RESIZE_H_
#define OCTAVO_IR_INTERPRET_RESIZE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::ir::interpret {

inline constexpr int64_t kMostResized = 1 << 20;  // positions of an axis whose weights are written out

// Position p of the result is the sum of weights[i] * x[from[i]] for i in [first[p], first[p + 1]). Empty: the axis stays as it is.
struct ResizedAxis {
  int64_t in = 1, out = 1;
  std::vector<size_t> first = {};
  std::vector<int64_t> from = {};
  std::vector<float> weights = {};
};

// Of an operand of this shape; `in` are the node's operands, whose first is not looked at. Fails where a position is no such sum.
Result<std::vector<ResizedAxis>> WeightsOfResize(const Graph& graph, const Node& node, const Shape& x,
                                                 std::span<const RtValue> in);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_RESIZE_H_
