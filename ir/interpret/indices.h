// Index operands, checked and counted from the front.
#ifndef OCTAVO_IR_INTERPRET_INDICES_H_
#define OCTAVO_IR_INTERPRET_INDICES_H_

#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

// All elements of an index tensor, each in -size..size-1, made non-negative.
inline Result<std::vector<int64_t>> IndicesInto(const Tensor& t, int64_t size) {
  OCTAVO_TRY(std::vector<int64_t> indices, IntsOf(t, "the indices"));
  for (int64_t& i : indices) {
    if (i < -size || i >= size) return Fail("index {} is outside an axis of size {}", i, size);
    if (i < 0) i += size;
  }
  return indices;
}

// The last axis of `indices` holds coordinates into shape[first..]; their flat offsets in units of the rest of the
// shape. Result: one offset in elements per tuple, added to the tuple's batch base (batch dims: the first `first`
// dims).
Result<std::vector<int64_t>> TupleOffsets(const Tensor& indices, const Shape& shape, size_t batch_dims);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_INDICES_H_
