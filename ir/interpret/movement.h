// Transpose, Slice, Concat and Split as strided copies: shared by the interpreter, which makes them one after the other, and the
// runtime, which shares them among threads.
#ifndef OCTAVO_IR_INTERPRET_MOVEMENT_H_
#define OCTAVO_IR_INTERPRET_MOVEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::ir::interpret {

// The elements of an index space, from operand `from` to result `to`. Strides and offsets count elements.
struct Move {
  size_t from = 0, to = 0;
  Shape shape{};
  std::vector<int64_t> from_strides{}, to_strides{};
  int64_t from_offset = 0, to_offset = 0;
};

// Every element of every result is written by one move. All have the dtype of operand 0, which has whole bytes.
struct Movement {
  std::vector<Shape> results;
  std::vector<Move> moves;
};

// Null for other ops; results are never larger than the operands together. Fails on operands and attributes that do not fit, with the reason alone.
using MovementPlanner = Result<Movement> (*)(const Node& node, std::span<const RtValue> in);
MovementPlanner MovementPlannerOf(Op op);

// Both begin where element 0 of their tensor lies; `element`: bytes of one.
void MakeMove(const Move& move, const std::byte* from, std::byte* to, size_t element);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_MOVEMENT_H_
