#include "octavo/runtime/heads_tail.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "octavo/kernels/norm/norm.h"
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/by_heads.h"
#include "octavo/runtime/room.h"
#include "octavo/runtime/rotate_half.h"

namespace octavo::runtime {

namespace {

bool IsFloats(const CompileContext& c, ValueId v) { return v.valid() && c.graph.value(v).type.dtype == DType::kF32; }

// A norm of each head: its vector is a constant with a value for each column.
bool TakeNorm(const CompileContext& c, ValueId v, HeadsPart& part) {
  ir::NodeId id;
  const Node* norm = OnlyReader(c.graph, v, Op::kRMSNormalization, &id);
  if (norm == nullptr) return false;
  const Tensor* gamma = c.Constant(norm->input(1));
  const int64_t axis = norm->attrs.Int("axis", -1);
  if (gamma == nullptr || gamma->dtype() != DType::kF32 || gamma->size() != part.size || (axis != -1 && axis != 3))
    return false;
  part.norm = norm;
  part.nodes.push_back(id);
  part.out = norm->output();
  return true;
}

// A table of a row for each row, of each batch entry or of all, for all heads.
bool IsTable(const CompileContext& c, ValueId v, const ir::SymShape& x, ir::NodeId product) {
  const auto& shape = c.graph.value(v).type.shape;
  if (!IsFloats(c, v) || !shape || shape->empty() || shape->size() > 4 || !IsThereBefore(c.graph, v, product))
    return false;
  for (size_t back = 0; back < shape->size(); ++back) {
    const ir::Dim& dim = (*shape)[shape->size() - 1 - back];
    const bool one = dim.is_number() && dim.number() == 1;
    const bool same = ProvablyEqual(dim, x[x.size() - 1 - back]);
    if (back == 0 ? !same : back == 2 ? !one : !one && !same) return false;
  }
  return true;
}

// The chain that is a rotary embedding of part.out, all of whose readers it has.
void TakeRotation(const CompileContext& c, ir::NodeId product, const ChainsByNode& chains, HeadsPart& part) {
  const auto& value = c.graph.value(part.out);
  if (value.uses.empty() || c.graph.IsGraphOutput(part.out)) return;
  const auto it = chains.find(value.uses[0].node);
  if (it == chains.end() || it->second->rotates != part.size || it->second->inputs[0] != part.out) return;
  const Chain& chain = *it->second;
  const bool alone =
      std::ranges::all_of(value.uses, [&](const ir::Use& use) { return std::ranges::contains(chain.nodes, use.node); });
  if (!alone || !IsTable(c, chain.inputs[1], *value.type.shape, product) ||
      !IsTable(c, chain.inputs[2], *value.type.shape, product))
    return;
  part.cos = chain.inputs[1], part.sin = chain.inputs[2];
  part.nodes.insert(part.nodes.end(), chain.nodes.begin(), chain.nodes.end());
  part.out = c.graph.node(chain.nodes.back()).output();
}

// Codes of all that part.out is, by one scale.
void TakeCodes(const CompileContext& c, const ChainsByNode& chains, HeadsPart& part) {
  ir::NodeId id;
  const Node* codes = OnlyReader(c.graph, part.out, Op::kQuantizeLinear, &id);
  if (codes == nullptr || chains.contains(id) || !ChainOf(c, id)) return;
  part.codes = codes;
  part.nodes.push_back(id);
  part.out = codes->output();
}

// A Concat that puts the rows behind those of a tensor which is no dequantized one (it would carry its codes along).
void TakeAppend(const CompileContext& c, ir::NodeId product, HeadsPart& part) {
  const Graph& g = c.graph;
  if (g.IsGraphOutput(part.out) || g.value(part.out).uses.size() != 1) return;
  const ir::Use use = g.value(part.out).uses[0];
  const Node& concat = g.node(use.node);
  if (concat.op != Op::kConcat || concat.inputs.size() != 2 || use.slot != 1) return;
  const int64_t axis = concat.attrs.Int("axis", 0);
  const ValueId past = concat.input(0);
  const auto &of_past = g.value(past).type.shape, &of_rows = g.value(part.out).type.shape;
  const DType dtype = g.value(part.out).type.dtype;
  if ((axis != 2 && axis != -2) || !past.valid() || g.value(past).type.dtype != dtype || c.Constant(past) != nullptr ||
      !of_past || !of_rows || of_past->size() != 4 || !IsThereBefore(g, past, product))
    return;
  const ir::NodeId maker = g.value(past).producer;
  if (maker.valid() && g.node(maker).op == Op::kDequantizeLinear) return;
  for (const size_t d : {size_t{0}, size_t{1}, size_t{3}}) {
    if (!ProvablyEqual((*of_past)[d], (*of_rows)[d])) return;
  }
  part.past = past;
  part.nodes.push_back(use.node);
  part.out = concat.output();
}

std::optional<HeadsPart> PartOf(const CompileContext& c, ir::NodeId product, ValueId v, const ChainsByNode& chains) {
  const Graph& g = c.graph;
  HeadsPart part;
  ir::NodeId id;
  const Node* reshape = OnlyReader(g, v, Op::kReshape, &id);
  if (reshape == nullptr || !IsFloats(c, v)) return {};
  const std::optional<ByHeads> heads = HeadsOf(g, v, reshape->output());
  if (!heads) return {};
  part.heads = heads->heads, part.size = heads->size;
  part.nodes = {id}, part.out = reshape->output();
  TakeNorm(c, part.out, part);
  const Node* transpose = OnlyReader(g, part.out, Op::kTranspose, &id);
  if (transpose == nullptr || transpose->attrs.Ints("perm") != std::vector<int64_t>{0, 2, 1, 3}) return {};
  part.nodes.push_back(id);
  part.out = transpose->output();
  if (!g.value(part.out).type.shape || g.value(part.out).type.shape->size() != 4) return {};
  if (part.norm == nullptr) TakeNorm(c, part.out, part);
  TakeRotation(c, product, chains, part);
  TakeCodes(c, chains, part);
  TakeAppend(c, product, part);
  return part;
}

bool TakeRows(const CompileContext& c, ValueId v, int64_t size, HeadsPart& part) {
  const auto& type = c.graph.value(v).type;
  if (type.dtype != DType::kF32 || !type.shape || type.shape->size() != 3 || !type.shape->back().is_number())
    return false;
  part.size = size, part.heads = type.shape->back().number() / size;
  return part.columns() == type.shape->back().number();
}

}  // namespace

std::vector<HeadsPart> FindHeadsParts(const CompileContext& c, ir::NodeId product, ValueId y,
                                      const ChainsByNode& chains) {
  const Graph& g = c.graph;
  ir::NodeId split_id;
  const Node* split = y.valid() ? OnlyReader(g, y, Op::kSplit, &split_id) : nullptr;
  const auto& shape = g.value(y).type.shape;
  if (!shape || shape->size() != 3) return {};
  std::vector<ValueId> values{y};
  if (split != nullptr) {
    const int64_t axis = split->attrs.Int("axis", 0);
    if (axis != 2 && axis != -1) return {};
    values = split->outputs;
  }
  std::vector<HeadsPart> parts;
  int64_t size = 0, columns = 0;
  for (const ValueId v : values) {
    if (!v.valid()) return {};
    parts.push_back(PartOf(c, product, v, chains).value_or(HeadsPart{.rows = true, .out = v}));
    if (!parts.back().rows) size = parts.back().size;
  }
  if (size == 0) return {};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].rows && !TakeRows(c, values[i], size, parts[i])) return {};
    if (parts[i].size != size) return {};
    columns += parts[i].columns();
  }
  const bool all = shape->back().is_number() && shape->back().number() == columns;
  if (!all || (split == nullptr && !parts[0].is_more())) return {};
  if (split != nullptr) parts[0].nodes.push_back(split_id);
  return parts;
}

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
    part.cos = slot(p.cos), part.sin = slot(p.sin), part.past = slot(p.past);
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
  if (any([](const Part& p) { return p.cos != 0; })) name += "+rotary";
  if (any([](const Part& p) { return p.dtype != DType::kF32; })) name += "+codes";
  if (any([](const Part& p) { return p.past != 0; })) name += "+append";
  return name.empty() ? "+heads" : name;
}

void HeadsTail::Need(Needs& needs, DType x, int64_t k) const {
  const auto any = Needs::Size::Any(), batch = Needs::Size::Same(0), rows = Needs::Size::Same(1);
  needs.Exactly(0, x, {batch, rows, k});
  for (const Part& p : parts_) {
    if (p.past != 0) needs.Exactly(p.past, p.dtype, {batch, p.heads, any, p.size});
    for (const size_t slot : {p.cos, p.sin}) {  // their last dim is a number that inference says
      if (slot != 0) needs.BroadcastsTo(slot, DType::kF32, {batch, 1, rows, p.size});
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
    for (const size_t slot : {p.past, p.cos, p.sin}) {
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

std::vector<HeadsTail::Place> HeadsTail::Open(StepCall& call) const {
  std::vector<Place> places;
  for (StepCall* one : call.apart) std::ranges::move(Open(*one), std::back_inserter(places));
  for (size_t i = 0; i < parts_.size() && call.apart.empty(); ++i) {
    places.push_back(OpenOne(call, i));
    Place& place = places.back();
    if (parts_[i].cos == 0) continue;
    const Tensor &cos = call.T(parts_[i].cos), &sin = call.T(parts_[i].sin);
    place.cos = cos.as<float>().data(), place.cos_strides = TableStrides(cos);
    place.sin = sin.as<float>().data(), place.sin_strides = TableStrides(sin);
  }
  return places;
}

HeadsTail::Place HeadsTail::OpenOne(StepCall& call, size_t i) const {
  const Part& p = parts_[i];
  const Shape& x = call.T(0).shape();
  const int64_t batch = x[0], fresh = x[1], heads = batch * p.heads, n = p.heads * p.size;
  const size_t slot = first_output_ + i;
  if (p.rows) return {call.Allocate(slot, p.dtype, {batch, fresh, n}).mutable_data(), fresh * n, p.size, n};
  const int64_t old = p.past != 0 ? call.T(p.past).shape()[2] : 0;
  if (p.past != 0 && call.rooms && IsInRoom(call.T(p.past), 2)) {
    Tensor& y = call.out[slot].tensor = ExtendRows(call.T(p.past), fresh, *call.threads);
    const Room* room = StridesOf(y);  // of one run there are no strides: it is dense
    const int64_t run = (room != nullptr ? room->capacity() : old + fresh) * p.size;
    return {y.mutable_data() + p.bytes(old * p.size), p.heads * run, run, p.size};
  }
  const int64_t run = (old + fresh) * p.size, kept = p.bytes(old * p.size);
  std::byte* y = call.Allocate(slot, p.dtype, {batch, p.heads, old + fresh, p.size}).mutable_data();
  if (kept > 0) {
    const Tensor past = Dense(call.T(p.past));
    const int64_t parts = PartsOf(heads, std::max<int64_t>(1, kElementGrain * 4 / kept), call.threads->count());
    call.threads->For(parts, [&](int64_t task) {
      const auto share = runtime::PartOf(heads, parts, task, 1);
      for (int64_t h = share.begin; h < share.end; ++h)
        std::memcpy(y + p.bytes(h * run), past.data() + h * kept, static_cast<size_t>(kept));
    });
  }
  return {y + kept, p.heads * run, run, p.size};
}

void HeadsTail::Store(const StepCall& call, const std::vector<Place>& places, const float* product, kernels::Range rows,
                      kernels::Range columns) const {
  const int64_t n = this->columns(), size = parts_[0].size, of_batch = call.T(0).shape()[1];
  const int64_t of_run = call.T(0).shape()[0] / std::max<int64_t>(1, std::ssize(call.apart));  // batch entries
  const TaskScratch scratch(static_cast<size_t>(size) * 5 * sizeof(float));
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& p = parts_[i];
    const int64_t begin = std::clamp((columns.begin - p.first) / size, int64_t{0}, p.heads),
                  end = std::clamp((columns.end - p.first) / size, int64_t{0}, p.heads);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t batch = r / of_batch % of_run, row = r % of_batch;
      const Place& to = places[static_cast<size_t>(r / of_batch / of_run) * parts_.size() + i];
      const auto of_row = [&](const std::array<int64_t, 3>& strides) { return batch * strides[0] + row * strides[2]; };
      const float* cos = p.cos == 0 ? nullptr : to.cos + of_row(to.cos_strides);
      const float* sin = p.cos == 0 ? nullptr : to.sin + of_row(to.sin_strides);
      for (int64_t h = begin; h < end; ++h) {
        const int64_t at = batch * to.batch + h * to.head + row * to.row;
        StoreLine(p, cos, sin, product + r * n + p.first + h * size, to.y + p.bytes(at),
                  reinterpret_cast<float*>(scratch.data()));
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
    RotateHalf(x, cos, sin, p.size, to);
    x = to;
  }
  if (codes) {
    kernels::QuantizeLinear(arch_, x, p.size, p.scale, p.zero_point, p.dtype, y);
  } else if (p.gamma.empty() && p.cos == 0) {
    std::copy_n(x, p.size, reinterpret_cast<float*>(y));
  }
}

}  // namespace octavo::runtime
