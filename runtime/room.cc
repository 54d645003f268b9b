#include "octavo/runtime/room.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "octavo/quant/numeric/coded_row.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

using ir::Shape;
using ir::Tensor;

int64_t Outer(const Shape& shape, size_t axis) { return ir::ElementCount(std::span(shape).first(axis)); }
size_t RowBytes(const Tensor& t, size_t axis) {
  return quant::BytesOf(t.dtype(), static_cast<size_t>(ir::ElementCount(std::span(t.shape()).subspan(axis + 1))));
}

// f(run) for each of `outer` runs of rows, `bytes` each.
template <class F>
void ForRuns(int64_t outer, size_t bytes, const Threads* threads, const F& f) {
  if (bytes == 0) return;
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  };
  constexpr size_t kGrain = 65536;  // bytes of a task
  if (threads == nullptr) return some(0, outer);
  const int64_t parts = PartsOf(outer, static_cast<int64_t>(std::max(size_t{1}, kGrain / bytes)), threads->count());
  if (parts <= 1) return some(0, outer);
  threads->For(parts, [&](int64_t i) {
    const Part p = PartOf(outer, parts, i, 1);
    some(p.begin, p.end);
  });
}

// Rows of each of `outer` runs, whose first ones lie `from_step` and `to_step` bytes apart.
void CopyRuns(int64_t outer, const std::byte* from, size_t from_step, std::byte* to, size_t to_step, size_t bytes,
              const Threads* threads) {
  ForRuns(outer, bytes, threads, [&](int64_t i) {
    std::memcpy(to + static_cast<size_t>(i) * to_step, from + static_cast<size_t>(i) * from_step, bytes);
  });
}

// `rows` dense rows of each run to the place `at` of the room.
void WriteRows(const std::byte* dense, Room& room, int64_t at, int64_t rows, const Threads* threads) {
  const int64_t columns = room.coded();
  const size_t row_bytes = columns > 0 ? static_cast<size_t>(columns) * sizeof(float) : room.row_bytes();
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  ForRuns(room.outer(), bytes, threads, [&](int64_t i) {
    const std::byte* from = dense + static_cast<size_t>(i) * bytes;
    if (columns == 0) std::memcpy(room.Row(i, at), from, bytes);
    for (int64_t row = 0; row < rows && columns > 0; ++row)
      quant::EncodeRow(reinterpret_cast<const float*>(from) + row * columns, columns, room.bits(),
                       room.Row(i, at + row));
  });
}

// Rows [begin, end) of each run of the room to where they lie in a dense tensor of `rows` rows.
void ReadRows(const Room& room, int64_t begin, int64_t end, Tensor& dense, int64_t rows) {
  const int64_t columns = room.coded();
  for (int64_t i = 0; i < room.outer(); ++i) {
    if (columns > 0) {
      float* to = dense.mutable_as<float>().data() + (i * rows + begin) * columns;
      for (int64_t row = begin; row < end; ++row, to += columns)
        quant::DecodeRow(room.Row(i, row), columns, room.bits(), to);
    } else if (end > begin) {
      std::memcpy(dense.mutable_data() + static_cast<size_t>(i * rows + begin) * room.row_bytes(), room.Row(i, begin),
                  static_cast<size_t>(end - begin) * room.row_bytes());
    }
  }
}

}  // namespace

Room::Room(int64_t outer, int64_t capacity, size_t row_bytes, size_t axis, int64_t coded, int bits, int64_t gone)
    : memory_(Tensor::Empty(ir::DType::kU8, {outer, capacity, static_cast<int64_t>(row_bytes)})),
      outer_(outer),
      capacity_(capacity),
      row_bytes_(row_bytes),
      axis_(axis),
      coded_(coded),
      bits_(bits),
      shared_(gone),
      used_(gone) {
  data_ = memory_.mutable_data();
  size_ = memory_.byte_size();
  if (coded > 0 || gone > 0) Hide();
}

Room::Room(std::shared_ptr<const Room> front, int64_t shared, int64_t capacity)
    : Room(front->outer(), capacity, front->row_bytes(), front->axis(), front->coded(), front->bits()) {
  front_ = std::move(front), shared_ = used_ = shared;
  Hide();
}

// Whoever takes codes for floats, or rows of one place for all, shall not go on.
void Room::Hide() {
  const size_t of_row = coded_ > 0 ? static_cast<size_t>(coded_) * sizeof(float) : row_bytes_;
  data_ = nullptr, size_ = static_cast<size_t>(outer_ * (shared_ + capacity_)) * of_row;
}

std::shared_ptr<Room> Room::Present(int64_t gone) const {
  auto present = std::make_shared<Room>(outer_, 0, row_bytes_, axis_, coded_, bits_);
  present->memory_ = memory_, present->capacity_ = capacity_, present->shared_ = shared_ - gone;
  present->used_ = present->shared_ + capacity_;
  if (front_ != nullptr) present->front_ = front_->Present(gone);
  if (coded_ > 0 || front_ != nullptr) {
    present->Hide();
  } else {
    present->data_ = present->memory_.mutable_data(), present->size_ = memory_.byte_size();
  }
  return present;
}

bool Room::Claim(int64_t at, int64_t count) {
  if (at < shared_ || at + count > shared_ + capacity_) return false;
  int64_t expected = at;
  return used_.compare_exchange_strong(expected, at + count);
}

Room* RoomOf(const Tensor& t) {
  return const_cast<Room*>(
      dynamic_cast<const Room*>(t.buffer().get()));  // rows that nobody claimed are still to be written
}

const Room* StridesOf(const Tensor& t) {
  const Room* room = RoomOf(t);
  return room != nullptr && (room->outer() > 1 || IsApart(t)) ? room : nullptr;
}

bool IsInRoom(const Tensor& t, size_t axis) {
  const Room* room = RoomOf(t);
  return room != nullptr && room->axis() == axis;
}

bool IsInRoom(const Tensor& t) { return RoomOf(t) != nullptr; }
bool IsCoded(const Tensor& t) {
  const Room* room = RoomOf(t);
  return room != nullptr && room->coded() > 0;
}

bool IsApart(const Tensor& t) {
  const Room* room = RoomOf(t);
  return room != nullptr && (room->coded() > 0 || room->shared() > 0);
}

int64_t GoneFrom(const Tensor& t) {
  const Room* room = RoomOf(t);
  return room == nullptr ? 0 : room->gone();
}

Tensor WithoutGone(const Tensor& t) {
  const Room* room = RoomOf(t);
  if (room == nullptr || room->gone() == 0) return t;
  Shape shape = t.shape();
  shape[room->axis()] -= room->gone();
  return Tensor::View(t.dtype(), std::move(shape), room->Present(room->gone()), 0);
}

size_t MemoryOf(const Tensor& t) {
  const Room* room = RoomOf(t);
  return room == nullptr ? t.byte_size() : static_cast<size_t>(room->outer() * room->capacity()) * room->row_bytes();
}

Tensor Dense(const Tensor& t) {
  const Room* room = StridesOf(t);
  if (room == nullptr) return t;
  Tensor dense = room->gone() > 0 ? Tensor::Zeros(t.dtype(), t.shape()) : Tensor::Empty(t.dtype(), t.shape());
  const int64_t rows = t.shape()[room->axis()];
  for (int64_t end = rows; room != nullptr; room = room->front().get()) {
    const int64_t begin = std::min(end, room->shared());
    ReadRows(*room, begin, std::exchange(end, begin), dense, rows);
  }
  return dense;
}

Tensor IntoRoom(const Tensor& dense, size_t axis, int64_t capacity, int bits) {
  const int64_t rows = dense.shape()[axis], outer = Outer(dense.shape(), axis), columns = dense.shape().back();
  const size_t row_bytes = bits > 0 ? quant::CodedRowBytes(columns, bits) : RowBytes(dense, axis);
  auto room = std::make_shared<Room>(outer, std::max(rows, capacity), row_bytes, axis, bits > 0 ? columns : 0, bits);
  room->Claim(0, rows);
  WriteRows(dense.data(), *room, 0, rows, nullptr);
  return Tensor::View(dense.dtype(), dense.shape(), std::move(room), 0);
}

Tensor CutRows(const Tensor& t, size_t axis, int64_t rows) {
  Shape shape = t.shape();
  const int64_t had = std::exchange(shape[axis], rows);
  if (Room* room = RoomOf(t); room != nullptr && room->axis() == axis) {
    std::shared_ptr<const ir::Buffer> owner = t.buffer();
    for (const Room* at = room; rows < at->shared() && at->front() != nullptr; at = at->front().get())
      owner = at->front();
    if (t.buffer().use_count() == 2 && owner == t.buffer()) room->Release(rows);  // `owner` is the second
    return Tensor::View(t.dtype(), std::move(shape), std::move(owner), 0);
  }
  Tensor copy = Tensor::Empty(t.dtype(), std::move(shape));
  const size_t row_bytes = RowBytes(t, axis), bytes = static_cast<size_t>(rows) * row_bytes;
  CopyRuns(Outer(t.shape(), axis), t.data(), static_cast<size_t>(had) * row_bytes, copy.mutable_data(), bytes, bytes,
           nullptr);
  return copy;
}

namespace {

constexpr int64_t kUnit = 64;
int64_t InUnits(int64_t rows) { return (rows + kUnit - 1) / kUnit * kUnit; }
int64_t WithHalfMore(int64_t rows) { return InUnits(rows + rows / 2); }

// Of each run the rows from `begin` to `end`, all of which lie behind those that are shared or gone in both.
void CopyRows(const Room& from, Room& to, int64_t begin, int64_t end, const Threads* threads) {
  if (begin >= end) return;
  CopyRuns(from.outer(), from.Row(0, begin), static_cast<size_t>(from.capacity()) * from.row_bytes(), to.Row(0, begin),
           static_cast<size_t>(to.capacity()) * to.row_bytes(), static_cast<size_t>(end - begin) * from.row_bytes(),
           threads);
}

// A room in which the first `old` rows of `past` are, and `rows` more belong to the caller: what another went on from is shared where
// attention can read it in two places.
std::shared_ptr<Room> RoomBehind(const Tensor& past, int64_t old, int64_t rows, const Threads& threads) {
  const auto own = std::static_pointer_cast<const Room>(past.buffer());
  const bool by_heads = past.rank() == 4 && past.dtype() == ir::DType::kF32 && own->axis() == 2;
  std::shared_ptr<const Room> front = own->front();
  int64_t shared = own->shared();
  const int64_t whole = old / Room::kSharedUnit * Room::kSharedUnit;
  if (own->IsTaken(old) && by_heads && whole > shared) front = own, shared = whole;  // else it is full, and all moves
  std::shared_ptr<Room> next;
  if (front != nullptr) {
    next = std::make_shared<Room>(front, shared, WithHalfMore(old + rows - shared));
  } else {
    next = std::make_shared<Room>(own->outer(), std::max(own->capacity(), WithHalfMore(old + rows - shared)),
                                  own->row_bytes(), own->axis(), own->coded(), own->bits(), shared);
  }
  next->Claim(shared, old + rows - shared);
  CopyRows(*own, *next, shared, old, &threads);
  return next;
}

}  // namespace

// Room for two units more than stay, so that rows move once for each kUnit new ones.
int64_t RowsToKeep(int64_t stay, int64_t unit) { return InUnits(stay + unit + kUnit); }

Tensor DropRows(const Tensor& t, int64_t stay, int64_t unit) {
  const Room* room = RoomOf(t);
  if (room == nullptr) return t;
  const int64_t rows = t.shape()[room->axis()], first = std::max<int64_t>(0, rows - stay) / unit * unit;
  const int64_t capacity = RowsToKeep(stay, unit);
  const bool fits = rows - room->gone() < capacity && room->capacity() <= capacity;
  if (fits || first <= room->gone()) return t;
  auto next = std::make_shared<Room>(room->outer(), capacity, room->row_bytes(), room->axis(), room->coded(),
                                     room->bits(), first);
  next->Claim(first, rows - first);
  for (int64_t end = rows; room != nullptr; room = room->front().get()) {
    const int64_t begin = std::min(end, std::max(first, room->shared()));
    CopyRows(*room, *next, begin, std::exchange(end, begin), nullptr);
  }
  return Tensor::View(t.dtype(), t.shape(), std::move(next), 0);
}

Tensor ExtendRows(const Tensor& past, int64_t rows, const Threads& threads) {
  Room* room = RoomOf(past);
  const int64_t old = past.shape()[room->axis()];
  std::shared_ptr<const ir::Buffer> owner = past.buffer();
  if (!room->Claim(old, rows)) owner = RoomBehind(past, old, rows, threads);
  Shape shape = past.shape();
  shape[room->axis()] = old + rows;
  return Tensor::View(past.dtype(), std::move(shape), std::move(owner), 0);
}

Tensor AppendRows(const Tensor& past, const Tensor& now, const Threads& threads) {
  Tensor all = ExtendRows(past, now.shape()[RoomOf(past)->axis()], threads);
  Room& room = *RoomOf(all);
  WriteRows(now.data(), room, past.shape()[room.axis()], now.shape()[room.axis()], &threads);
  return all;
}

}  // namespace octavo::runtime
