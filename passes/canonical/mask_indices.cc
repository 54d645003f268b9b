// masks, second part: gathers and comparisons over position indices that come to nothing.
// Exporters write the padding mask as a lookup attention_mask[b, s] for every b and s (torch's mask functions,
// vmapped). An index that runs through all of b and all of s in order looks up the mask itself.
#include "octavo/passes/canonical/mask_indices.h"

#include <algorithm>
#include <utility>

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxDepth = 64;             // of a chain of index arithmetic; real ones have about ten steps
constexpr int64_t kMaxScanned = 1 << 16;  // elements of a constant that are looked at

bool IsZero(const Dim& d) { return IsNumber(d, 0); }
// Dims are sizes: a plain symbol is never negative.
bool IsNotNegative(const Dim& d) { return d.is_number() ? d.number() >= 0 : !d.symbol().empty(); }

}  // namespace

const Affine* IndexFacts::AffineAt(ValueId v, int depth) {
  if (!v.valid() || depth > kMaxDepth) return nullptr;
  const auto known = affine_.find(v);
  if (known != affine_.end()) return known->second ? &*known->second : nullptr;
  std::optional<Affine> a = ComputeAffine(v, depth);
  if (a) {
    for (const Dim& d : a->step) {
      if (!d.known()) a.reset();
      if (!a) break;
    }
    if (a && !a->offset.known()) a.reset();
  }
  const auto& slot = affine_[v] = std::move(a);
  return slot ? &*slot : nullptr;
}

// All elements equal: by the contents of a shape computation.
std::optional<Affine> IndexFacts::Uniform(ValueId v) {
  const ir::SymContents* c = inference_.Contents(v);
  const int64_t rank = RankOf(g_, v);
  if (c == nullptr || c->size() != 1 || rank < 0) return {};
  return Affine{c->front(), std::vector<Dim>(static_cast<size_t>(rank), Dim(0))};
}

// A constant with one axis longer than 1, in equal steps.
std::optional<Affine> IndexFacts::Progression(const Tensor& t) {
  if (!IsPlainInteger(t.dtype()) || t.size() < 1 || t.size() > kMaxScanned) return {};
  const Ints v = t.ToInts();
  Affine a{Dim(v[0]), std::vector<Dim>(t.shape().size(), Dim(0))};
  if (v.size() == 1) return a;
  const int64_t step = v[1] - v[0];
  for (size_t i = 1; i < v.size(); ++i) {
    if (v[i] - v[i - 1] != step) return {};
  }
  for (size_t i = 0; i < t.shape().size(); ++i) {
    if (t.shape()[i] == 1) continue;
    if (t.shape()[i] != t.size()) return {};
    a.step[i] = Dim(step);
  }
  return a;
}

std::optional<Affine> IndexFacts::Broadcasted(const Affine& a, ValueId of, ValueId to) {
  const SymShape* in = ShapeOf(g_, of);
  const SymShape* out = ShapeOf(g_, to);
  if (in == nullptr || out == nullptr || in->size() != a.step.size() || in->size() > out->size()) return {};
  Affine b{a.offset, std::vector<Dim>(out->size(), Dim(0))};
  const size_t shift = out->size() - in->size();
  for (size_t i = 0; i < in->size(); ++i) {
    if (!IsNumber((*in)[i], 1)) b.step[shift + i] = a.step[i];
  }
  return b;
}

// A view that adds or drops dims of 1.
std::optional<Affine> IndexFacts::ThroughView(const Node& n, int depth) {
  const Affine* a = AffineAt(n.input(0), depth + 1);
  const SymShape* in = ShapeOf(g_, n.input(0));
  const SymShape* out = ShapeOf(g_, n.output());
  if (a == nullptr || in == nullptr || out == nullptr) return {};
  Affine b{a->offset, std::vector<Dim>(out->size(), Dim(0))};
  if (n.op == Op::kTranspose) {
    const Ints perm = PermOf(n, static_cast<int64_t>(in->size()));
    for (size_t i = 0; i < perm.size(); ++i) b.step[i] = a->step[static_cast<size_t>(perm[i])];
    return b;
  }
  size_t i = 0;
  for (size_t j = 0; j < out->size(); ++j) {
    if (IsNumber((*out)[j], 1)) continue;
    while (i < in->size() && IsNumber((*in)[i], 1)) ++i;
    if (i >= in->size() || !ProvablyEqual((*in)[i], (*out)[j])) return {};
    b.step[j] = a->step[i++];
  }
  for (; i < in->size(); ++i) {
    if (!IsNumber((*in)[i], 1)) return {};
  }
  return b;
}

std::optional<Affine> IndexFacts::ComputeAffine(ValueId v, int depth) {
  if (!IsPlainInteger(DTypeOf(g_, v))) return {};
  if (const Tensor* t = g_.ConstantOf(v)) return Progression(*t);
  if (auto u = Uniform(v)) return u;
  const Node* n = g_.Producer(v);
  if (n == nullptr) return {};
  switch (n->op) {
    case Op::kRange: {
      const Affine* start = AffineAt(n->input(0), depth + 1);
      const Affine* delta = AffineAt(n->input(2), depth + 1);
      if (start == nullptr || delta == nullptr) return {};
      return Affine{start->offset, {delta->offset}};
    }
    case Op::kIdentity:
    case Op::kCast: {  // from a wider or narrower integer: positions fit
      const Affine* a = AffineAt(n->input(0), depth + 1);
      return a == nullptr ? std::nullopt : std::optional(*a);
    }
    case Op::kExpand: {
      const Affine* a = AffineAt(n->input(0), depth + 1);
      return a == nullptr ? std::nullopt : Broadcasted(*a, n->input(0), v);
    }
    case Op::kTranspose:
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten:
      return ThroughView(*n, depth);
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
      break;
    default:
      return {};
  }
  const Affine* left = AffineAt(n->input(0), depth + 1);
  const Affine* right = AffineAt(n->input(1), depth + 1);
  if (left == nullptr || right == nullptr) return {};
  auto a = Broadcasted(*left, n->input(0), v), b = Broadcasted(*right, n->input(1), v);
  if (!a || !b) return {};
  if (n->op == Op::kMul) {
    if (!std::all_of(b->step.begin(), b->step.end(), IsZero)) std::swap(a, b);
    if (!std::all_of(b->step.begin(), b->step.end(), IsZero)) return {};
    for (Dim& d : a->step) d = d * b->offset;
    a->offset = a->offset * b->offset;
    return a;
  }
  const bool minus = n->op == Op::kSub;
  a->offset = minus ? a->offset - b->offset : a->offset + b->offset;
  for (size_t i = 0; i < a->step.size(); ++i) a->step[i] = minus ? a->step[i] - b->step[i] : a->step[i] + b->step[i];
  return a;
}

// a OP b from the range of a - b.
Truth IndexFacts::Comparison(const Node& n, int depth) {
  const SymShape* out = ShapeOf(g_, n.output());
  const Affine* left = AffineAt(n.input(0), depth + 1);
  const Affine* right = AffineAt(n.input(1), depth + 1);
  if (out == nullptr || left == nullptr || right == nullptr) return Truth::kUnknown;
  const auto a = Broadcasted(*left, n.input(0), n.output()), b = Broadcasted(*right, n.input(1), n.output());
  if (!a || !b) return Truth::kUnknown;
  Dim low = a->offset - b->offset, high = low;
  for (size_t i = 0; i < out->size(); ++i) {
    const Dim step = a->step[i] - b->step[i], far = step * ((*out)[i] - Dim(1));
    if (IsNotNegative(step)) {
      high = high + far;
    } else if (step.is_number()) {
      low = low + far;
    } else {
      return Truth::kUnknown;
    }
  }
  const auto at_least = [](const Dim& d, int64_t bound) { return d.is_number() && d.number() >= bound; };
  const auto at_most = [](const Dim& d, int64_t bound) { return d.is_number() && d.number() <= bound; };
  const auto decide = [](bool yes, bool no) { return yes ? Truth::kTrue : no ? Truth::kFalse : Truth::kUnknown; };
  switch (n.op) {
    case Op::kGreaterOrEqual:
      return decide(at_least(low, 0), at_most(high, -1));
    case Op::kGreater:
      return decide(at_least(low, 1), at_most(high, 0));
    case Op::kLessOrEqual:
      return decide(at_most(high, 0), at_least(low, 1));
    case Op::kLess:
      return decide(at_most(high, -1), at_least(low, 0));
    case Op::kEqual:
      return decide(IsZero(low) && IsZero(high), at_least(low, 1) || at_most(high, -1));
    default:
      return Truth::kUnknown;
  }
}

Truth IndexFacts::TruthAt(ValueId v, int depth) {
  if (!v.valid() || depth > kMaxDepth) return Truth::kUnknown;
  const auto known = truth_.find(v);
  if (known != truth_.end()) return known->second;
  return truth_[v] = ComputeTruth(v, depth);
}

namespace {

Truth TruthOfTensor(const Tensor& t) {
  if (t.size() < 1 || t.size() > kMaxScanned || t.dtype() == DType::kString) return Truth::kUnknown;
  const bool first = t.GetDouble(0) != 0;  // NaN counts as true, as Cast to bool says
  for (int64_t i = 1; i < t.size(); ++i) {
    if ((t.GetDouble(i) != 0) != first) return Truth::kUnknown;
  }
  return first ? Truth::kTrue : Truth::kFalse;
}

}  // namespace

Truth IndexFacts::ComputeTruth(ValueId v, int depth) {
  if (const Tensor* t = g_.ConstantOf(v)) return TruthOfTensor(*t);
  const Node* n = g_.Producer(v);
  if (n == nullptr) return Truth::kUnknown;
  const auto of = [&](size_t slot) { return TruthAt(n->input(slot), depth + 1); };
  switch (n->op) {
    case Op::kConstantOfShape: {
      const Tensor value = n->attrs.TensorOr("value");
      return value.defined() ? TruthOfTensor(value) : Truth::kFalse;
    }
    case Op::kCast:  // only to bool: a float 0.3 would be cast to the integer 0
      if (DTypeOf(g_, v) != DType::kBool && DTypeOf(g_, n->input(0)) != DType::kBool) return Truth::kUnknown;
      return of(0);
    case Op::kIdentity:
    case Op::kExpand:
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten:
    case Op::kTranspose:
    case Op::kSlice:
      return of(0);
    case Op::kNot:
      return of(0) == Truth::kTrue ? Truth::kFalse : of(0) == Truth::kFalse ? Truth::kTrue : Truth::kUnknown;
    case Op::kAnd:
      if (of(0) == Truth::kFalse || of(1) == Truth::kFalse) return Truth::kFalse;
      return of(0) == Truth::kTrue && of(1) == Truth::kTrue ? Truth::kTrue : Truth::kUnknown;
    case Op::kOr:
      if (of(0) == Truth::kTrue || of(1) == Truth::kTrue) return Truth::kTrue;
      return of(0) == Truth::kFalse && of(1) == Truth::kFalse ? Truth::kFalse : Truth::kUnknown;
    default:
      return Comparison(*n, depth);
  }
}

namespace {

// M with dims of 1 added (and dropped), as `out`; invalid where it is not that.
ValueId WithOnes(Rewriter& rw, ValueId m, const SymShape& out) {
  const Graph& g = rw.graph();
  const SymShape in = *ShapeOf(g, m);
  if (ProvablyEqual(in, out)) return m;
  Ints added;
  size_t i = 0;
  for (size_t j = 0; j < out.size(); ++j) {
    if (i < in.size() && ProvablyEqual(in[i], out[j])) {
      ++i;
    } else if (IsNumber(out[j], 1)) {
      added.push_back(static_cast<int64_t>(j));
    } else {
      return MakeReshape(rw, m, out);
    }
  }
  if (i < in.size()) return MakeReshape(rw, m, out);
  const ValueId axes = MakeInts(rw, added);
  return Make(rw, Op::kUnsqueeze, {m, axes}, {}, Type{DTypeOf(g, m), out});
}

// The index runs through the dims in row-major order: `dims` (without 1s) belong to the axes with a step, in order, and
// each step is the product of the dims behind.
bool RunsThrough(const Affine& index, const SymShape& index_shape, const SymShape& dims) {
  if (!IsZero(index.offset)) return false;
  std::vector<size_t> axes;
  for (size_t a = 0; a < index.step.size(); ++a) {
    if (!IsZero(index.step[a])) axes.push_back(a);
    if (IsZero(index.step[a]) && !IsNumber(index_shape[a], 1)) return false;  // repeats: not the mask itself
  }
  SymShape real;
  for (const Dim& d : dims) {
    if (!IsNumber(d, 1)) real.push_back(d);
  }
  if (axes.size() != real.size()) return false;
  Dim stride = 1;
  for (size_t k = real.size(); k-- > 0;) {
    if (!ProvablyEqual(index_shape[axes[k]], real[k]) || !ProvablyEqual(index.step[axes[k]], stride)) return false;
    stride = stride * real[k];
  }
  return true;
}

bool GatherAll(Rewriter& rw, NodeId id, IndexFacts& facts) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* data = ShapeOf(g, n.input(0));
  const SymShape* index_shape = ShapeOf(g, n.input(1));
  const SymShape* out = ShapeOf(g, n.output());
  if (data == nullptr || data->empty() || index_shape == nullptr || out == nullptr) return false;
  const Affine* index = facts.AffineOf(n.input(1));
  if (index == nullptr || index->step.size() != index_shape->size()) return false;
  int64_t axis = n.attrs.Int("axis", 0);
  axis += axis < 0 ? static_cast<int64_t>(data->size()) : 0;
  ValueId source = n.input(0);
  if (!RunsThrough(*index, *index_shape, {(*data)[static_cast<size_t>(axis)]})) {
    // A flat view of something: all of it must be looked up.
    const Node* view = g.Producer(source);
    if (view == nullptr || !IsReshapeLike(view->op)) return false;
    for (size_t i = 0; i < data->size(); ++i) {
      if (static_cast<int64_t>(i) != axis && !IsNumber((*data)[i], 1)) return false;
    }
    source = view->input(0);
    const SymShape* dims = ShapeOf(g, source);
    if (dims == nullptr || !RunsThrough(*index, *index_shape, *dims)) return false;
  }
  const ValueId all = WithOnes(rw, source, *out);
  if (!all.valid()) return false;
  ReplaceNode(rw, id, all);
  return true;
}

// The components of an index tensor of GatherND: what Concat put together on the last axis.
std::vector<ValueId> Components(const Graph& g, ValueId indices) {
  const Node* n = g.Producer(indices);
  const SymShape* shape = ShapeOf(g, indices);
  if (n == nullptr || shape == nullptr || shape->empty()) return {};
  if (IsNumber(shape->back(), 1)) return {indices};
  const int64_t axis = n->attrs.Int("axis", 0), rank = static_cast<int64_t>(shape->size());
  if (n->op != Op::kConcat || (axis != -1 && axis != rank - 1)) return {};
  for (ValueId v : n->inputs) {
    const SymShape* s = ShapeOf(g, v);
    if (s == nullptr || s->empty() || !IsNumber(s->back(), 1)) return {};
  }
  return n->inputs;
}

// A constant [d0, d1, ..., n]: its last axis says the position of each of these in a tensor [d0, d1, ...].
bool SaysPositions(const Tensor& t, const SymShape& data) {
  const ir::Shape& shape = t.shape();
  if (!IsPlainInteger(t.dtype()) || t.size() > kMaxScanned || shape.size() != data.size() + 1 ||
      shape.back() != static_cast<int64_t>(data.size()))
    return false;
  for (size_t i = 0; i < data.size(); ++i) {
    if (!IsNumber(data[i], shape[i])) return false;
  }
  const Ints found = t.ToInts();
  Ints place(data.size(), 0);
  for (size_t i = 0; i < found.size(); i += place.size()) {
    if (!std::equal(place.begin(), place.end(), found.begin() + static_cast<std::ptrdiff_t>(i))) return false;
    for (size_t a = place.size(); a-- > 0 && ++place[a] == shape[a];) place[a] = 0;
  }
  return true;
}

// The index [..., n] names every element (or row) of the data once, in order; beside these positions it has dims of 1 alone.
bool NamesAll(const Graph& g, ValueId index, const SymShape& data, IndexFacts& facts) {
  const SymShape* index_shape = ShapeOf(g, index);
  if (const Tensor* t = g.ConstantOf(index); t != nullptr && SaysPositions(*t, data)) return true;
  const std::vector<ValueId> parts = Components(g, index);
  if (index_shape == nullptr || parts.empty() || parts.size() > data.size()) return false;
  const size_t positions = index_shape->size() - 1;
  std::vector<bool> used(positions, false);
  int64_t last = -1;
  for (size_t k = 0; k < parts.size(); ++k) {
    const Affine* part = facts.AffineOf(parts[k]);
    if (part == nullptr || part->step.size() != positions + 1 || !IsZero(part->offset)) return false;
    if (IsNumber(data[k], 1)) continue;  // index 0 everywhere is all there is; anything else is the run's error
    int64_t axis = -1;
    for (size_t a = 0; a < positions; ++a) {
      if (IsZero(part->step[a])) continue;
      if (axis >= 0 || !IsNumber(part->step[a], 1)) return false;
      axis = static_cast<int64_t>(a);
    }
    if (axis <= last || !ProvablyEqual((*index_shape)[static_cast<size_t>(axis)], data[k])) return false;
    used[static_cast<size_t>(axis)] = true;
    last = axis;
  }
  for (size_t a = 0; a < positions; ++a) {
    if (!used[a] && !IsNumber((*index_shape)[a], 1)) return false;
  }
  return true;
}

bool ScatterNdAll(Rewriter& rw, NodeId id, IndexFacts& facts) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const ValueId updates = n.input(2);
  const SymShape* data = ShapeOf(g, n.input(0));
  if (data == nullptr || n.attrs.Str("reduction", "none") != "none" || !ir::SameShape(g, n.input(0), updates) ||
      !NamesAll(g, n.input(1), *data, facts))
    return false;
  ReplaceNode(rw, id, updates);
  return true;
}

bool GatherNdAll(Rewriter& rw, NodeId id, IndexFacts& facts) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* data = ShapeOf(g, n.input(0));
  const SymShape* out = ShapeOf(g, n.output());
  if (data == nullptr || out == nullptr || n.attrs.Int("batch_dims", 0) != 0 || !NamesAll(g, n.input(1), *data, facts))
    return false;
  const ValueId all = WithOnes(rw, n.input(0), *out);
  if (!all.valid()) return false;
  ReplaceNode(rw, id, all);
  return true;
}

}  // namespace

bool IndexedWhole(Rewriter& rw, NodeId id, IndexFacts& facts) {
  const Node& n = rw.graph().node(id);
  if (n.op == Op::kGather) return GatherAll(rw, id, facts);
  if (n.op == Op::kScatterND) return ScatterNdAll(rw, id, facts);
  return n.op == Op::kGatherND && GatherNdAll(rw, id, facts);
}

}  // namespace octavo::passes::canonical
