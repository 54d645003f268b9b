// Memory of a KV cache with room for rows to come: of each head `capacity` rows, the first of which are there. A tensor in it has the
// shape of the rows that are there, and only kernels that ask for its room may read it (Kernel::takes_rooms): the others get a dense copy.
// So no row is copied when the next one comes.
#ifndef OCTAVO_RUNTIME_ROOM_H_
#define OCTAVO_RUNTIME_ROOM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "octavo/ir/tensor.h"
#include "octavo/runtime/threads.h"

namespace octavo::runtime {

class Room final : public ir::Buffer {
 public:
  Room(int64_t outer, int64_t capacity, size_t row_bytes, size_t axis);

  int64_t outer() const { return outer_; }        // of how many rows run beside each other: batch x heads
  int64_t capacity() const { return capacity_; }  // of each of them
  size_t row_bytes() const { return row_bytes_; }
  size_t axis() const { return axis_; }  // of the rows
  std::byte* Row(int64_t outer, int64_t row) {
    return data_ + static_cast<size_t>(outer * capacity_ + row) * row_bytes_;
  }
  const std::byte* Row(int64_t outer, int64_t row) const {
    return data_ + static_cast<size_t>(outer * capacity_ + row) * row_bytes_;
  }

  // Rows [at, at + count) are the caller's to write. False where they have an owner (another tensor of this room was appended to from
  // the same row on), or no place.
  bool Claim(int64_t at, int64_t count);
  // Rows from `at` on have no owner again. For who alone holds the room.
  void Release(int64_t at) { used_ = at; }

 private:
  ir::Tensor memory_;
  int64_t outer_, capacity_;
  size_t row_bytes_, axis_;
  std::atomic<int64_t> used_ = 0;
};

// Null where the tensor is dense, as it also is in a room for one run of rows.
const Room* StridesOf(const ir::Tensor& t);
ir::Tensor Dense(const ir::Tensor& t);

// A copy of `dense` in a room for `capacity` rows along `axis`, or for as many as it has.
ir::Tensor IntoRoom(const ir::Tensor& dense, size_t axis, int64_t capacity);
bool IsInRoom(const ir::Tensor& t, size_t axis);
bool IsInRoom(const ir::Tensor& t);

// The first `rows` rows along `axis`: where they lie, if that is in a room of this axis, else a copy.
ir::Tensor CutRows(const ir::Tensor& t, size_t axis, int64_t rows);

// past and, along the axis of its room, the rows of `now`, which has the same dtype and other sizes: in the room of past where nobody
// else has appended to it, else in a new one with half as much again.
ir::Tensor AppendRows(const ir::Tensor& past, const ir::Tensor& now, const Threads& threads);
// The same, where the caller still writes the rows that come: `rows` of each run.
ir::Tensor ExtendRows(const ir::Tensor& past, int64_t rows, const Threads& threads);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ROOM_H_
