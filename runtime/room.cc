#include "octavo/runtime/room.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

using ir::Shape;
using ir::Tensor;

Room* RoomBehind(const Tensor& t) {
  return const_cast<Room*>(
      dynamic_cast<const Room*>(t.buffer().get()));  // rows that nobody claimed are still to be written
}

int64_t Outer(const Shape& shape, size_t axis) { return ir::ElementCount(std::span(shape).first(axis)); }
size_t RowBytes(const Tensor& t, size_t axis) {
  return quant::BytesOf(t.dtype(), static_cast<size_t>(ir::ElementCount(std::span(t.shape()).subspan(axis + 1))));
}

// Rows of each of `outer` runs, whose first ones lie `from_step` and `to_step` bytes apart.
void CopyRuns(int64_t outer, const std::byte* from, size_t from_step, std::byte* to, size_t to_step, size_t bytes,
              const Threads* threads) {
  if (bytes == 0) return;
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(to + static_cast<size_t>(i) * to_step, from + static_cast<size_t>(i) * from_step, bytes);
    }
  };
  constexpr size_t kGrain = 65536;  // bytes of a task
  if (threads == nullptr) return copy(0, outer);
  const int64_t parts = PartsOf(outer, static_cast<int64_t>(std::max(size_t{1}, kGrain / bytes)), threads->count());
  if (parts <= 1) return copy(0, outer);
  threads->For(parts, [&](int64_t i) {
    const Part p = PartOf(outer, parts, i, 1);
    copy(p.begin, p.end);
  });
}

}  // namespace

Room::Room(int64_t outer, int64_t capacity, size_t row_bytes, size_t axis)
    : memory_(Tensor::Empty(ir::DType::kU8, {outer, capacity, static_cast<int64_t>(row_bytes)})),
      outer_(outer),
      capacity_(capacity),
      row_bytes_(row_bytes),
      axis_(axis) {
  data_ = memory_.mutable_data();
  size_ = memory_.byte_size();
}

bool Room::Claim(int64_t at, int64_t count) {
  if (at + count > capacity_) return false;
  int64_t expected = at;
  return used_.compare_exchange_strong(expected, at + count);
}

const Room* StridesOf(const Tensor& t) {
  const Room* room = RoomBehind(t);
  return room != nullptr && room->outer() > 1 ? room : nullptr;
}

bool IsInRoom(const Tensor& t, size_t axis) {
  const Room* room = RoomBehind(t);
  return room != nullptr && room->axis() == axis;
}

bool IsInRoom(const Tensor& t) { return RoomBehind(t) != nullptr; }

Tensor Dense(const Tensor& t) {
  const Room* room = StridesOf(t);
  if (room == nullptr) return t;
  Tensor dense = Tensor::Empty(t.dtype(), t.shape());
  const size_t bytes = static_cast<size_t>(t.shape()[room->axis()]) * room->row_bytes();
  CopyRuns(room->outer(), room->Row(0, 0), static_cast<size_t>(room->capacity()) * room->row_bytes(),
           dense.mutable_data(), bytes, bytes, nullptr);
  return dense;
}

Tensor IntoRoom(const Tensor& dense, size_t axis, int64_t capacity) {
  const int64_t rows = dense.shape()[axis], outer = Outer(dense.shape(), axis);
  const size_t row_bytes = RowBytes(dense, axis);
  auto room = std::make_shared<Room>(outer, std::max(rows, capacity), row_bytes, axis);
  room->Claim(0, rows);
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  CopyRuns(outer, dense.data(), bytes, room->Row(0, 0), static_cast<size_t>(room->capacity()) * row_bytes, bytes,
           nullptr);
  return Tensor::View(dense.dtype(), dense.shape(), std::move(room), 0);
}

Tensor CutRows(const Tensor& t, size_t axis, int64_t rows) {
  Shape shape = t.shape();
  const int64_t had = std::exchange(shape[axis], rows);
  if (Room* room = RoomBehind(t); room != nullptr && room->axis() == axis) {
    if (t.buffer().use_count() == 1) room->Release(rows);
    return Tensor::View(t.dtype(), std::move(shape), t.buffer(), 0);
  }
  Tensor copy = Tensor::Empty(t.dtype(), std::move(shape));
  const size_t row_bytes = RowBytes(t, axis), bytes = static_cast<size_t>(rows) * row_bytes;
  CopyRuns(Outer(t.shape(), axis), t.data(), static_cast<size_t>(had) * row_bytes, copy.mutable_data(), bytes, bytes,
           nullptr);
  return copy;
}

Tensor ExtendRows(const Tensor& past, int64_t rows, const Threads& threads) {
  std::shared_ptr<const ir::Buffer> owner = past.buffer();
  Room* room = RoomBehind(past);
  const size_t axis = room->axis(), row_bytes = room->row_bytes();
  const int64_t old = past.shape()[axis];
  if (!room->Claim(old, rows)) {
    constexpr int64_t kUnit = 64;
    const int64_t wanted = (old + rows) + (old + rows) / 2;
    auto larger = std::make_shared<Room>(
        room->outer(), std::max(room->capacity(), (wanted + kUnit - 1) / kUnit * kUnit), row_bytes, axis);
    larger->Claim(0, old + rows);
    CopyRuns(room->outer(), room->Row(0, 0), static_cast<size_t>(room->capacity()) * row_bytes, larger->Row(0, 0),
             static_cast<size_t>(larger->capacity()) * row_bytes, static_cast<size_t>(old) * row_bytes, &threads);
    owner = std::move(larger);
  }
  Shape shape = past.shape();
  shape[axis] = old + rows;
  return Tensor::View(past.dtype(), std::move(shape), std::move(owner), 0);
}

Tensor AppendRows(const Tensor& past, const Tensor& now, const Threads& threads) {
  Tensor all = ExtendRows(past, now.shape()[RoomBehind(past)->axis()], threads);
  Room* room = RoomBehind(all);
  const size_t bytes = static_cast<size_t>(now.shape()[room->axis()]) * room->row_bytes();
  CopyRuns(room->outer(), now.data(), bytes, room->Row(0, past.shape()[room->axis()]),
           static_cast<size_t>(room->capacity()) * room->row_bytes(), bytes, &threads);
  return all;
}

}  // namespace octavo::runtime
