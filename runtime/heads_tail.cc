#include "octavo/runtime/heads_tail.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "octavo/kernels/norm/norm.h"
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/coded_row.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {

HeadsTail::HeadsTail(std::vector<HeadsPart> parts, const CompileContext& c, Made& made)
    : arch_(c.arch), first_output_(made.outputs.size()) {
  const auto slot = [&](ValueId v) {
    if (v.valid()) made.inputs.push_back(v);
    return v.valid() ? made.inputs.size() - 1 : 0;
  };
  int64_t column = 0;
  for (HeadsPart& p : parts) {
    Part part{.first = column, .heads = p.heads, .size = p.size, .rows = p.rows, .gamma = {}};
    column += p.columns();
    if (p.norm != nullptr) {
      part.gamma = c.Constant(p.norm->input(1))->ToFloats();
      part.epsilon = p.norm->attrs.Float("epsilon", 1e-5f);
    }
    if (p.codes != nullptr) {
      const Tensor& zero = *c.Constant(p.codes->input(2));
      part.dtype = zero.dtype(), part.scale = ScalarF32(*c.Constant(p.codes->input(1)));
      part.zero_point = quant::IsFp8(zero.dtype()) ? 0 : ScalarInt(zero);
    }
    part.rotation = p.rotation, part.rows_first = p.rows_first;
    part.cos = slot(p.cos), part.sin = slot(p.sin), part.positions = slot(p.positions);
    part.append = p.append, part.past = slot(p.past);
    if (p.append != nullptr && p.append->op == Op::kScatterND) {
      part.append_at = slot(p.append->input(1));
    } else if (p.append != nullptr && p.append->op != Op::kConcat) {
      part.append_at = slot(p.append->input(2)), part.append_rows = slot(p.append->input(3));
    }
    parts_.push_back(std::move(part));
    made.outputs.push_back(p.out);
    made.nodes.insert(made.nodes.end(), p.nodes.begin(), p.nodes.end());
  }
}

int64_t HeadsTail::columns() const { return parts_.back().first + parts_.back().heads * parts_.back().size; }
int64_t HeadsTail::unit() const { return std::lcm(parts_[0].size, kernels::kColumnBlock) / kernels::kColumnBlock; }

std::string HeadsTail::name() const {
  const auto any = [&](auto has) { return std::ranges::any_of(parts_, has); };
  std::string name;
  if (any([](const Part& p) { return !p.gamma.empty(); })) name += "+norm";
  if (any([](const Part& p) { return p.rotation.columns > 0; })) name += "+rotary";
  if (any([](const Part& p) { return p.dtype != DType::kF32; })) name += "+codes";
  if (any([](const Part& p) { return p.past != 0; })) name += "+append";
  return name.empty() ? "+heads" : name;
}

void HeadsTail::Need(Needs& needs, DType x, int64_t k) const {
  const auto any = Needs::Size::Any(), batch = Needs::Size::Same(0), rows = Needs::Size::Same(1);
  needs.Exactly(0, x, {batch, rows, k});
  for (const Part& p : parts_) {
    if (p.past != 0) needs.Exactly(p.past, p.dtype, {batch, p.heads, any, p.size});
    if (p.append != nullptr && p.append->op == Op::kScatterND) needs.Exactly(p.append_at, DType::kS64, {rows, 1});
    if (p.append_rows != 0)
      needs.Exactly(p.append_at, DType::kS64, {batch}), needs.Exactly(p.append_rows, DType::kS64, {});
    for (const size_t slot : {p.cos, p.sin}) {  // their last dim is a number that inference says
      if (slot == 0 || p.rotation.by_pair) continue;
      const Needs::Size one(1);
      needs.BroadcastsTo(slot, DType::kF32,
                         {batch, p.rows_first ? rows : one, p.rows_first ? one : rows, p.rotation.columns});
    }
  }
}

std::vector<size_t> HeadsTail::Pasts() const {
  std::vector<size_t> slots;
  for (const Part& p : parts_) {
    if (p.past != 0) slots.push_back(p.past);
  }
  return slots;
}

std::vector<size_t> HeadsTail::Apart() const {
  std::vector<size_t> slots;
  for (const Part& p : parts_) {
    for (const size_t slot : {p.past, p.cos, p.sin, p.positions, p.append_at, p.append_rows}) {
      if (slot != 0) slots.push_back(slot);
    }
  }
  return slots;
}

void MakeDenseBut(StepCall& call, std::span<const size_t> slots) {
  if (!call.rooms) return;
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!std::ranges::contains(slots, i)) call.in[i].tensor = Dense(call.in[i].tensor);
  }
}

Result<std::vector<HeadsTail::Place>> HeadsTail::Open(StepCall& call) const {
  std::vector<Place> places;
  for (StepCall* one : call.apart) {
    OCTAVO_TRY(std::vector<Place> own, Open(*one));
    std::ranges::move(own, std::back_inserter(places));
  }
  if (!call.apart.empty()) return places;
  std::vector<Angles> angles;  // before a cache is taken, since they can fail
  for (const Part& p : parts_) {
    OCTAVO_TRY(Angles own, AnglesOf(call, p));
    angles.push_back(std::move(own));
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    OCTAVO_TRY(Place place, OpenOne(call, i));
    place.angles = std::move(angles[i]);
    places.push_back(std::move(place));
  }
  return places;
}

Result<Angles> HeadsTail::AnglesOf(const StepCall& call, const Part& p) const {
  if (p.rotation.columns == 0) return Angles{};
  const int64_t batch = call.T(0).shape()[0], rows = call.T(0).shape()[1];
  const Tensor &cos = call.T(p.cos), &sin = call.T(p.sin);
  if (!p.rotation.by_pair) return AnglesOfTables(cos, sin, batch, rows);
  const Tensor* positions = p.positions != 0 ? &call.T(p.positions) : nullptr;
  return AnglesOfOp(cos, sin, positions, batch, rows, p.rotation.table());
}

Result<HeadsTail::Place> HeadsTail::OpenOne(StepCall& call, size_t i) const {
  const Part& p = parts_[i];
  const Shape& x = call.T(0).shape();
  const int64_t batch = x[0], fresh = x[1], n = p.heads * p.size;
  const size_t slot = first_output_ + i;
  if (p.append != nullptr) return PlaceInCache(call, p, slot);
  if (p.rows) {
    std::byte* y = call.Allocate(slot, p.dtype, {batch, fresh, n}).mutable_data();
    return Place{.y = y, .batch = p.bytes(fresh * n), .head = p.bytes(p.size), .row = p.bytes(n), .rows = fresh};
  }
  std::byte* y = call.Allocate(slot, p.dtype, {batch, p.heads, fresh, p.size}).mutable_data();
  return Place{
      .y = y, .batch = p.bytes(fresh * n), .head = p.bytes(fresh * p.size), .row = p.bytes(p.size), .rows = fresh};
}

// Where ScatterND writes each row: of two at one place the later one stays.
Result<std::vector<int64_t>> PlacesOf(const Tensor& indices, int64_t rows) {
  std::vector<int64_t> places;
  std::map<int64_t, size_t> last;
  for (const int64_t i : indices.as<int64_t>()) {
    if (i < -rows || i >= rows) return ir::Fail("index {} is outside axis 0 of size {}", i, rows);
    const int64_t at = i < 0 ? i + rows : i;
    if (const auto it = last.find(at); it != last.end()) places[it->second] = -1;
    last[at] = places.size();
    places.push_back(at);
  }
  return places;
}

// Where each entry's rows begin, and how many the cache then has; in the cache's room if that is all that happens.
Result<HeadsTail::Place> HeadsTail::PlaceInCache(StepCall& call, const Part& p, size_t slot) const {
  const Shape& x = call.T(0).shape();
  const int64_t batch = x[0], fresh = x[1], old = call.T(p.past).shape()[2];
  Place place{.row = p.bytes(p.size), .rows = old + fresh, .at = std::vector<int64_t>(static_cast<size_t>(batch), old)};
  if (p.append->op == Op::kTensorScatter) {
    const ir::Type now{p.dtype, ir::SymShape{batch, p.heads, fresh, p.size}};
    const Tensor* at = p.append_at != 0 ? &call.T(p.append_at) : nullptr;
    OCTAVO_TRY(ir::interpret::CacheWrite write, ir::interpret::PlanCacheWrite(*p.append, call.T(p.past), now, at));
    place.rows = old, place.at = std::move(write.start), place.circular = true;
    return CopyOfCache(call, p, slot, std::move(place));
  }
  if (p.append->op == Op::kScatterND) {
    OCTAVO_TRY(place.of_row, PlacesOf(call.T(p.append_at), old));
    place.rows = old;
    return CopyOfCache(call, p, slot, std::move(place));
  }
  if (p.append->op == Op::kCacheAppend) {
    place.rows = call.T(p.append_rows).as<int64_t>()[0];
    if (place.rows < 0)
      return ir::Fail("a cache of {} rows cannot be; its input rows must not be negative", place.rows);
    for (size_t b = 0; b < place.at.size(); ++b)
      place.at[b] = std::clamp(call.T(p.append_at).as<int64_t>()[b], -fresh, old);
  }
  const bool behind = std::ranges::all_of(place.at, [&](int64_t at) { return at == old; });
  if (!behind || place.rows != old + fresh || !call.rooms || !IsInRoom(call.T(p.past), 2))
    return CopyOfCache(call, p, slot, std::move(place));
  call.out[slot].tensor = ExtendRows(call.T(p.past), fresh, *call.threads);
  Room& room = *RoomOf(call.out[slot].tensor);
  place.y = room.Row(0, room.shared());
  for (int64_t& at : place.at) at -= room.shared();
  place.rows -= room.shared();
  place.row = static_cast<int64_t>(room.row_bytes()), place.bits = room.bits();
  place.head = room.capacity() * place.row, place.batch = p.heads * place.head;
  return place;
}

// The rows that stay, and zeros where no rows will be; in the cache itself where this run alone has it.
HeadsTail::Place HeadsTail::CopyOfCache(StepCall& call, const Part& p, size_t slot, Place place) const {
  const Shape& x = call.T(0).shape();
  const int64_t heads = x[0] * p.heads, old = call.T(p.past).shape()[2], run = place.rows * p.size;
  place.head = p.bytes(run), place.batch = p.heads * place.head;
  if (call.rooms) call.in[p.past].tensor = Dense(call.T(p.past));
  Tensor own = old == place.rows ? call.Take(p.past) : Tensor();
  const bool taken = own.defined();
  const Tensor past = taken ? own : call.T(p.past);
  if (taken) call.out[slot].tensor = std::move(own);
  if (!taken) call.Allocate(slot, p.dtype, {x[0], p.heads, place.rows, p.size});
  place.y = call.out[slot].tensor.mutable_data();
  const int64_t bytes = p.bytes(std::max<int64_t>(1, run));
  const int64_t parts = PartsOf(heads, std::max<int64_t>(1, kElementGrain * 4 / bytes), call.threads->count());
  call.threads->For(parts, [&](int64_t task) {
    const auto share = runtime::PartOf(heads, parts, task, 1);
    for (int64_t h = share.begin; h < share.end; ++h) {
      const int64_t at = place.at[static_cast<size_t>(h / p.heads)];
      const int64_t kept = place.circular ? place.rows : std::clamp(at, int64_t{0}, place.rows);
      const int64_t end = place.circular ? place.rows : std::clamp(at + x[1], kept, place.rows);
      std::byte* y = place.y + p.bytes(h * run);
      if (!taken && kept > 0)
        std::memcpy(y, past.data() + p.bytes(h * old * p.size), static_cast<size_t>(p.bytes(kept * p.size)));
      if (end < place.rows)
        std::memset(y + p.bytes(end * p.size), 0, static_cast<size_t>(p.bytes((place.rows - end) * p.size)));
    }
  });
  return place;
}

void HeadsTail::Store(const StepCall& call, const std::vector<Place>& places, const float* product, kernels::Range rows,
                      kernels::Range columns) const {
  const int64_t n = this->columns(), size = parts_[0].size, of_batch = call.T(0).shape()[1];
  const int64_t of_run = call.T(0).shape()[0] / std::max<int64_t>(1, std::ssize(call.apart));  // batch entries
  const TaskScratch scratch(static_cast<size_t>(size) * 6 * sizeof(float));
  auto* own = reinterpret_cast<float*>(scratch.data());
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& p = parts_[i];
    const int64_t begin = std::clamp((columns.begin - p.first) / size, int64_t{0}, p.heads),
                  end = std::clamp((columns.end - p.first) / size, int64_t{0}, p.heads);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t batch = r / of_batch % of_run, row = r % of_batch;
      const Place& to = places[static_cast<size_t>(r / of_batch / of_run) * parts_.size() + i];
      int64_t place = row + (to.at.empty() ? 0 : to.at[static_cast<size_t>(batch)]);
      if (!to.of_row.empty()) place = to.of_row[static_cast<size_t>(row)];
      if (to.circular) place %= to.rows;
      if (place < 0 || place >= to.rows) continue;
      const float* cos = p.cos == 0 ? nullptr : to.angles.Cos(batch, row);
      const float* sin = p.cos == 0 ? nullptr : to.angles.Sin(batch, row);
      for (int64_t h = begin; h < end; ++h) {
        std::byte* y = to.y + batch * to.batch + h * to.head + place * to.row;
        float* line = own + 5 * size;
        StoreLine(p, cos, sin, product + r * n + p.first + h * size,
                  to.bits > 0 ? reinterpret_cast<std::byte*>(line) : y, own);
        if (to.bits > 0) quant::EncodeRow(line, size, to.bits, y);
      }
    }
  }
}

// `scratch`: five lines.
void HeadsTail::StoreLine(const Part& p, const float* cos, const float* sin, const float* x, std::byte* y,
                          float* scratch) const {
  const bool codes = p.dtype != DType::kF32;
  const auto step = [&](bool last, float* otherwise) {
    return last && !codes ? reinterpret_cast<float*>(y) : otherwise;
  };
  if (!p.gamma.empty()) {
    float* to = step(p.cos == 0, scratch);
    const kernels::NormArgs norm{
        .n = p.size, .x = x, .gamma = p.gamma.data(), .epsilon = p.epsilon, .rms = true, .y = to};
    kernels::NormRows(arch_, norm, 0, 1, scratch + 2 * p.size);
    x = to;
  }
  if (p.cos != 0) {
    float* to = step(true, scratch + p.size);
    Rotate(p.rotation, x, cos, sin, p.size, to);
    x = to;
  }
  if (codes) {
    kernels::QuantizeLinear(arch_, x, p.size, p.scale, p.zero_point, p.dtype, y);
  } else if (p.gamma.empty() && p.cos == 0) {
    std::copy_n(x, p.size, reinterpret_cast<float*>(y));
  }
}

}  // namespace octavo::runtime
