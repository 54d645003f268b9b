#include "octavo/passes/quantize/stream.h"

#include <algorithm>

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

bool IsNorm(const Node& n) {
  return n.op == Op::kLayerNormalization || n.op == Op::kRMSNormalization || n.op == Op::kSkipLayerNorm;
}
size_t GammaSlot(const Node& n) { return n.op == Op::kSkipLayerNorm ? 2 : 1; }

const Tensor* Floats(const Graph& g, ValueId v) {
  const Tensor* t = v.valid() ? g.ConstantOf(v) : nullptr;
  return t != nullptr && t->dtype() == DType::kF32 ? t : nullptr;
}

int64_t WidthOf(const Graph& g, ValueId v) {
  const auto& shape = g.value(v).type.shape;
  return shape && !shape->empty() && shape->back().is_number() ? shape->back().number() : -1;
}

namespace {

int64_t RankOf(const Graph& g, ValueId v) {
  const auto& shape = g.value(v).type.shape;
  return shape ? static_cast<int64_t>(shape->size()) : 0;
}

const Tensor* Matrix(const Graph& g, ValueId v) {
  const Tensor* t = Floats(g, v);
  return t != nullptr && t->rank() == 2 ? t : nullptr;
}

const Tensor* Vector(const Graph& g, ValueId v, int64_t size) {
  const Tensor* t = Floats(g, v);
  return t != nullptr && t->rank() == 1 && t->size() == size ? t : nullptr;
}

// Whether the axes in this operand are known and the last of r is none of them.
bool LeavesLast(const Graph& g, ValueId axes, int64_t r) {
  const Tensor* t = axes.valid() ? g.ConstantOf(axes) : nullptr;
  return t != nullptr && t->dtype() == DType::kS64 && t->size() > 0 &&
         std::ranges::none_of(t->as<int64_t>(), [r](int64_t axis) { return (axis + r) % r == r - 1; });
}

}  // namespace

bool Stream::Follow(NodeId norm) {
  Norm(norm);
  while (!work_.empty() && legal_) {
    const ValueId v = work_.back();
    work_.pop_back();
    From(v);
    if (g_.IsGraphOutput(v)) exits.try_emplace(v);
    for (const ir::Use& use : g_.value(v).uses) Into(v, {use.node, use.slot});
  }
  return legal_;
}

int64_t Stream::Weights() const {
  int64_t sum = 0;
  const auto count = [&](Slot s) { sum += g_.ConstantOf(g_.node(s.node).input(s.slot))->size(); };
  for (const auto& [slot, by] : columns) count(slot);
  for (const auto& [slot, norm] : rows) count(slot);
  return sum;
}

int64_t Stream::Products() const {
  std::set<ValueId> entered;
  for (const Slot& s : entries) entered.insert(g_.node(s.node).input(s.slot));
  return static_cast<int64_t>(entered.size() + exits.size() + ends.size()) * width_ * width_;
}

void Stream::Norm(NodeId id) {
  const Node& n = g_.node(id);
  if (!norms.insert(id).second) return;
  if (!HasVectors(n)) {
    legal_ = false;
    return;
  }
  Operand({id, 0});
  if (n.op == Op::kSkipLayerNorm) {
    Operand({id, 1});
    if (n.output(1).valid()) Take(n.output(1));
  }
  Behind(n.output(), id);
}

// What reads rows of a norm, as they are or moved about.
void Stream::Behind(ValueId y, NodeId norm) {
  std::vector<Slot> others;
  for (const ir::Use& use : g_.value(y).uses) {
    const Slot s{use.node, use.slot};
    const Node& n = g_.node(use.node);
    if (IsLinear(s)) {
      rows[{use.node, 1}] = norm;
    } else if (s.slot == 0 && n.op != Op::kConcat && IsView(n)) {
      for (const ValueId out : n.outputs) {
        if (out.valid()) Behind(out, norm);
      }
    } else {
      others.push_back(s);
    }
  }
  if (others.empty() && !g_.IsGraphOutput(y)) return;
  ends[y] = std::move(others);
  norm_of[y] = norm;
}

// Gamma and beta are vectors of the width, and nobody reads means or deviations.
bool Stream::HasVectors(const Node& n) const {
  const size_t slot = GammaSlot(n);
  const int64_t last = RankOf(g_, n.input(0)) - 1, axis = n.attrs.Int("axis", -1);
  for (size_t i = slot; i < n.outputs.size(); ++i) {
    const ValueId v = n.outputs[i];
    if (v.valid() && (g_.IsGraphOutput(v) || !g_.value(v).uses.empty())) return false;
  }
  return (axis == -1 || axis == last) && Vector(g_, n.input(slot), width_) != nullptr &&
         (!n.input(slot + 1).valid() || Vector(g_, n.input(slot + 1), width_) != nullptr);
}

bool Stream::IsLinear(Slot s) const {
  const Node& n = g_.node(s.node);
  const Tensor* w = n.op == Op::kMatMul && s.slot == 0 ? Matrix(g_, n.input(1)) : nullptr;
  return w != nullptr && w->shape()[0] == width_;
}

// Of something that computes with turned values.
void Stream::Operand(Slot s) {
  const ValueId v = g_.node(s.node).input(s.slot);
  if (WidthOf(g_, v) != width_ || g_.value(v).type.dtype != DType::kF32) {
    legal_ = false;
  } else if (Floats(g_, v) != nullptr) {
    columns.try_emplace(s);
  } else if (turned_.contains(v) || Turns(v)) {
    Take(v);
  } else {
    entries.insert(s);
  }
}

void Stream::Take(ValueId v) {
  if (turned_.insert(v).second) work_.push_back(v);
}

// Whether the value's producer can give it turned.
bool Stream::Turns(ValueId v) const {
  const Node* n = g_.Producer(v);
  if (n == nullptr) return false;
  if (n->op == Op::kSkipLayerNorm) return v == n->output(1) && HasVectors(*n);
  if (n->op == Op::kMatMul) return Matrix(g_, n->input(1)) != nullptr;
  if (n->op == Op::kGather && Matrix(g_, n->input(0)) != nullptr) return n->attrs.Int("axis", 0) == 0;
  if (n->op == Op::kAdd) return SameWidth(*n);
  return Scalar(*n) || Scaled(*n).has_value() || IsView(*n);
}

bool Stream::SameWidth(const Node& n) const {
  return WidthOf(g_, n.input(0)) == width_ && WidthOf(g_, n.input(1)) == width_;
}

// The slot of what is multiplied or divided by one number.
std::optional<size_t> Stream::Scalar(const Node& n) const {
  const size_t slots = n.op == Op::kMul ? 2 : n.op == Op::kDiv ? 1 : 0;
  for (size_t slot = 0; slot < slots; ++slot) {
    const Tensor* t = Floats(g_, n.input(1 - slot));
    if (t != nullptr && t->size() == 1 && WidthOf(g_, n.input(slot)) == width_) return slot;
  }
  return {};
}

std::optional<Stream::ScaledLinear> Stream::Scaled(const Node& n) const {
  if (n.op != Op::kMul) return {};
  const size_t slot = Vector(g_, n.input(0), width_) != nullptr ? 0 : 1;
  if (Vector(g_, n.input(slot), width_) == nullptr) return {};
  ValueId v = n.input(1 - slot);
  ScaledLinear found{slot, {}, {}};
  if (g_.IsFrom(v, Op::kAdd) && g_.HasOneUse(v)) {
    const Node& add = *g_.Producer(v);
    const size_t at = Floats(g_, add.input(0)) != nullptr ? 0 : 1;
    if (Vector(g_, add.input(at), width_) == nullptr) return {};
    found.bias = Slot{g_.value(v).producer, at};
    v = add.input(1 - at);
  }
  if (!g_.IsFrom(v, Op::kMatMul) || !g_.HasOneUse(v) || WidthOf(g_, v) != width_) return {};
  found.product = g_.value(v).producer;
  return Matrix(g_, g_.node(found.product).input(1)) != nullptr ? std::optional(found) : std::nullopt;
}

// Moves whole rows of the width about, or adds them up.
bool Stream::IsView(const Node& n) const {
  const ValueId x = n.input(0);
  const int64_t r = x.valid() ? RankOf(g_, x) : 0;
  const auto keeps = [&](ValueId v) { return !v.valid() || WidthOf(g_, v) == width_; };
  if (r == 0 || width_ < 2 || !keeps(x) || !std::ranges::all_of(n.outputs, keeps)) return false;
  switch (n.op) {
    case Op::kIdentity:
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kExpand:
      return true;
    case Op::kTranspose: {
      const std::vector<int64_t> perm = n.attrs.Ints("perm");
      return !perm.empty() && perm.back() == r - 1;
    }
    case Op::kConcat:
    case Op::kGather:
    case Op::kSplit:
      return (n.attrs.Int("axis", 0) + r) % r != r - 1;
    case Op::kSlice:
      return LeavesLast(g_, n.input(3), r);
    case Op::kReduceMean:
      return LeavesLast(g_, n.input(1), r);
    default:
      return false;
  }
}

// Operands of the producer of a turned value.
void Stream::From(ValueId v) {
  const NodeId id = g_.value(v).producer;
  const Node& n = g_.node(id);
  if (n.op == Op::kSkipLayerNorm) {
    Norm(id);
  } else if (n.op == Op::kMatMul) {
    columns.try_emplace({id, 1});
  } else if (n.op == Op::kAdd) {
    Operand({id, 0});
    Operand({id, 1});
  } else if (const auto slot = Scalar(n)) {
    Operand({id, *slot});
  } else if (const auto scaled = Scaled(n)) {
    columns[{scaled->product, 1}] = n.input(scaled->slot);
    if (scaled->bias) columns[*scaled->bias] = n.input(scaled->slot);
    replaced[v] = n.input(1 - scaled->slot);
  } else {
    for (size_t i = 0; i < (n.op == Op::kConcat ? n.inputs.size() : 1); ++i) Operand({id, i});
    for (const ValueId out : n.outputs) {
      if (out.valid()) Take(out);
    }
  }
}

// What reads a turned value.
void Stream::Into(ValueId v, Slot s) {
  const Node& n = g_.node(s.node);
  const bool sum = n.op == Op::kAdd && SameWidth(n);
  const bool view = (s.slot == 0 || n.op == Op::kConcat) && IsView(n);
  if (IsNorm(n) && s.slot < GammaSlot(n)) {
    Norm(s.node);
  } else if (IsLinear(s)) {
    rows.try_emplace({s.node, 1});
  } else if (sum || view || Scalar(n) == s.slot) {
    for (const ValueId out : n.outputs) {
      if (out.valid()) Take(out);
    }
  } else {
    exits[v].push_back(s);
  }
}

}  // namespace octavo::passes::quantize
