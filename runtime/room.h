// Memory of a KV cache with room for rows to come: of each head `capacity` rows, the first of which are there. A tensor in it has the
// shape of the rows that are there, and only kernels that ask for its room may read it (Kernel::takes_rooms): the others get a dense copy.
// So no row is copied when the next one comes. Rows of floats may lie there as codes (quant/numeric/coded_row.h): the tensor still has their
// type and shape, and a dense copy their values. And the first rows may lie in another room, which many sequences have in common (theirs in a
// third one): who goes on from a row that another went on from shares what was there. Or they lie nowhere, since no window of attention sees them any more: they
// are gone, and zeros in a dense copy.
#ifndef OCTAVO_RUNTIME_ROOM_H_
#define OCTAVO_RUNTIME_ROOM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "octavo/ir/tensor.h"
#include "octavo/runtime/threads.h"

namespace octavo::runtime {

class Room final : public ir::Buffer {
 public:
  static constexpr int64_t kSharedUnit = 64;  // rows: what attention brings into L1 at once

  // coded: the columns of a row of floats that lies there as codes of `bits` bits, in row_bytes; 0: rows as they are. gone: so many rows in
  // front lie nowhere; capacity counts from there on.
  Room(int64_t outer, int64_t capacity, size_t row_bytes, size_t axis, int64_t coded = 0, int bits = 0,
       int64_t gone = 0);
  // Of the rows behind the first `shared` ones of another room; capacity counts from row `shared` on.
  Room(std::shared_ptr<const Room> front, int64_t shared, int64_t capacity);

  int64_t outer() const { return outer_; }        // of how many rows run beside each other: batch x heads
  int64_t capacity() const { return capacity_; }  // of each of them, without those that are shared
  size_t row_bytes() const { return row_bytes_; }
  size_t axis() const { return axis_; }  // of the rows
  int64_t coded() const { return coded_; }
  int bits() const { return bits_; }                                   // 0: no codes
  const std::shared_ptr<const Room>& front() const { return front_; }  // null: no rows are shared
  int64_t shared() const { return shared_; }                           // rows in front that lie in `front`, or nowhere
  int64_t gone() const { return front_ == nullptr ? shared_ : front_->gone(); }
  // The rows behind `gone`, as a room in which none is gone; nobody can append to it.
  std::shared_ptr<Room> Present(int64_t gone) const;
  // Of those that are not shared.
  std::byte* Row(int64_t outer, int64_t row) { return memory_.mutable_data() + At(outer, row); }
  const std::byte* Row(int64_t outer, int64_t row) const { return memory_.data() + At(outer, row); }

  // Rows [at, at + count) are the caller's to write. False where they have an owner (another tensor of this room was appended to from
  // the same row on), or no place.
  bool Claim(int64_t at, int64_t count);
  bool IsTaken(int64_t row) const { return row < used_; }
  // Rows from `at` on have no owner again. For who alone holds the room.
  void Release(int64_t at) { used_ = at; }

 private:
  void Hide();  // where its bytes are not what the tensor's type and shape promise
  size_t At(int64_t outer, int64_t row) const {
    return static_cast<size_t>(outer * capacity_ + row - shared_) * row_bytes_;
  }

  ir::Tensor memory_;
  int64_t outer_, capacity_;
  size_t row_bytes_, axis_;
  int64_t coded_;
  int bits_;
  std::shared_ptr<const Room> front_ = nullptr;
  int64_t shared_ = 0;
  std::atomic<int64_t> used_ = 0;
};

// Null where the tensor is dense, as it also is in a room for one run of rows that are no codes and not shared.
const Room* StridesOf(const ir::Tensor& t);
// Where the tensor lies, for who extended it; null: in no room.
Room* RoomOf(const ir::Tensor& t);
ir::Tensor Dense(const ir::Tensor& t);

// A copy of `dense` in a room for `capacity` rows along `axis`, or for as many as it has; as codes, if it is of floats.
ir::Tensor IntoRoom(const ir::Tensor& dense, size_t axis, int64_t capacity, int bits = 0);
bool IsInRoom(const ir::Tensor& t, size_t axis);
bool IsInRoom(const ir::Tensor& t);
bool IsCoded(const ir::Tensor& t);
bool IsApart(
    const ir::Tensor& t);  // in rows of codes, or behind rows that are shared or gone: not as its type and strides say
int64_t GoneFrom(const ir::Tensor& t);  // rows in front that lie nowhere
// The tensor without those, where it lies.
ir::Tensor WithoutGone(const ir::Tensor& t);
size_t MemoryOf(const ir::Tensor& t);  // with the room for rows to come, without rows that are shared

// The first `rows` rows along `axis`: where they lie, if that is in a room of this axis, else a copy.
ir::Tensor CutRows(const ir::Tensor& t, size_t axis, int64_t rows);

// Where more lies in a room than attention needs that sees no key before the last `stay` ones: the same tensor in another room, without rows in front,
// `unit` of them at a time, so that who skips them goes on with the same blocks.
ir::Tensor DropRows(const ir::Tensor& t, int64_t stay, int64_t unit);
int64_t RowsToKeep(int64_t stay, int64_t unit);  // of which it has memory

// past and, along the axis of its room, the rows of `now`, which has the same dtype and other sizes: in the room of past where nobody
// else has appended to it, else in a new one with half as much again, which shares the rows in front where attention can read them there
// (floats [B,H,S,size]).
ir::Tensor AppendRows(const ir::Tensor& past, const ir::Tensor& now, const Threads& threads);
// The same, where the caller still writes the rows that come: `rows` of each run.
ir::Tensor ExtendRows(const ir::Tensor& past, int64_t rows, const Threads& threads);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ROOM_H_
