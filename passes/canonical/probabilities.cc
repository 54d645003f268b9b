// probabilities: what changes probabilities after the Softmax is moved to where the attention rules do not see it.
// Before: MatMul(Mul(p [B,H,Sq,Sk], m [B,1,1,Sk]), v)                After: MatMul(p, Mul(v, m as [B,1,Sk,1]))
// Before: p = Softmax(Concat(s, sink [1,H,1,1] expanded)); MatMul(Slice(p, without the last column), v)      (attention sinks; also one for each query)
// Before: p = Softmax(Pad(s, a column of a number behind)), and the sink or the number in front of the scores               (softmax with one more)
// After:  MatMul(Softmax(s' + sink's mask), v'), K and V with a key of zeros more, whose score is the sink
// Before: Where(And(IsInf(p), Greater(p, 0)), 3.4e38, p), as torch's nan_to_num has it behind its question for NaN         After: p
// The first: (p m) v = p (m v), the same bits where m is 0 or 1, one rounding per term otherwise. The second: the same bits for
// finite Q; the sink's probability meets a value of zero. Of several masks the sum is taken first: one rounding.
// Only f32 and only where nothing else reads the probabilities; masks that depend on the query or the head stay.
#include <cmath>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/regroup.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

bool IsOne(const SymShape& s, size_t axis) { return IsNumber(s[axis], 1); }

bool MaskToValues(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Node* mul = g.Producer(n.input(0));
  if (mul == nullptr || mul->op != Op::kMul || !g.HasOneUse(n.input(0)) || DTypeOf(g, n.output()) != DType::kF32)
    return false;
  for (size_t slot : {0u, 1u}) {
    const ValueId p = mul->input(slot), m = mul->input(1 - slot), v = n.input(1);
    const SymShape *shape = ShapeOf(g, m), *probs = ShapeOf(g, p), *values = ShapeOf(g, v);
    if (!g.IsFrom(p, Op::kSoftmax) || !g.HasOneUse(p) || g.IsFrom(v, Op::kDequantizeLinear)) continue;
    if (shape == nullptr || probs == nullptr || values == nullptr || shape->size() != 4 || probs->size() != 4 ||
        values->size() != 4)
      continue;
    if (!IsOne(*shape, 1) || !IsOne(*shape, 2) || !ProvablyEqual((*shape)[3], (*probs)[3])) continue;
    const ValueId column = MakeTranspose(rw, m, {0, 1, 3, 2});
    const Type type{DType::kF32, BroadcastShapes({ShapeOf(g, v), ShapeOf(g, column)})};
    const ValueId masked = Make(rw, Op::kMul, {v, column}, {}, type);
    const NodeId old = g.value(n.input(0)).producer;
    rw.SetInput(id, 0, p);
    rw.SetInput(id, 1, masked);
    rw.EraseDead(old);
    return true;
  }
  return false;
}

// A Softmax, or one whose NaNs are replaced by a number: never infinite.
bool IsProbability(const Graph& g, ValueId v, int depth = 8) {
  const Node* n = g.Producer(v);
  if (n == nullptr || depth == 0) return false;
  if (n->op == Op::kSoftmax) return true;
  if (n->op == Op::kCast) return IsPlainFloat(DTypeOf(g, v)) && IsProbability(g, n->input(0), depth - 1);
  const auto instead = n->op == Op::kWhere ? ConstScalarBeside(g, n->input(1), v) : std::nullopt;
  return instead && std::isfinite(*instead) && IsProbability(g, n->input(2), depth - 1);
}

// False everywhere, since a probability is asked whether it is infinite.
bool AsksForInfinity(const Graph& g, ValueId v, int depth = 4) {
  const Node* n = g.Producer(v);
  if (n == nullptr || depth == 0) return false;
  switch (n->op) {
    case Op::kIsInf:
      return IsProbability(g, n->input(0));
    case Op::kCast:
      return AsksForInfinity(g, n->input(0), depth - 1);
    case Op::kAnd:
      return AsksForInfinity(g, n->input(0), depth - 1) || AsksForInfinity(g, n->input(1), depth - 1);
    case Op::kEqual: {
      const auto c = ConstScalar(g, n->input(1));
      return c && std::isinf(*c) && IsProbability(g, n->input(0));
    }
    default:
      return false;
  }
}

bool DropInfinities(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const ValueId p = n.input(2);
  if (!IsProbability(g, p) || !SameShape(g, p, n.output()) || !AsksForInfinity(g, n.input(0))) return false;
  ReplaceNode(rw, id, p);
  return true;
}

struct SinkForm {
  ValueId scores, sink, mask, probabilities;
  std::vector<ValueId> masks;  // more than one, or beside a sink that is none for each head: `mask` is then invalid
  NodeId product, scale, softmax, values;  // scale invalid: none
  std::optional<float> number;             // the sink of every head, where it is one of a Pad: `sink` is then invalid
  SymShape wide;                           // what masks and sink are then expanded to, without the sink's column
};

// The parameter [1,H,1,1] behind an Expand over the queries.
ValueId Narrow(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n != nullptr && n->op == Op::kExpand) v = n->input(0);
  const SymShape* s = ShapeOf(g, v);
  if (s == nullptr || s->size() != 4 || !IsOne(*s, 0) || !(*s)[1].is_number() || !IsOne(*s, 2) || !IsOne(*s, 3))
    return {};
  return v;
}

// The number of which Pad adds one column in front of the last axis or behind it; nothing: it does something else.
std::optional<float> PaddedColumn(const Graph& g, const Node& pad, bool in_front) {
  if (pad.op != Op::kPad || pad.attrs.Str("mode", "constant") != "constant") return {};
  const auto pads = ConstInts(g, pad.input(1));
  const auto axes = pad.input(3).valid() ? ConstInts(g, pad.input(3)) : Ints{0, 1, 2, 3};
  if (!pads || !axes || pads->size() != 2 * axes->size()) return {};
  for (size_t i = 0; i < pads->size(); ++i) {
    const int64_t axis = (*axes)[i % axes->size()];
    const bool column = (axis == 3 || axis == -1) && (i < axes->size()) == in_front;
    if ((*pads)[i] != (column ? 1 : 0)) return {};
  }
  const auto number = pad.input(2).valid() ? ConstScalar(g, pad.input(2)) : std::optional(0.0);
  return number ? std::optional(static_cast<float>(*number)) : std::nullopt;
}

// p without the sink's column; `keys` are left.
bool DropsSink(const Graph& g, const Node& slice, const Dim& keys, bool in_front) {
  const auto from = ConstInts(g, slice.input(1)), axes = ConstInts(g, slice.input(3));
  const auto steps = slice.input(4).valid() ? ConstInts(g, slice.input(4)) : Ints{1};
  const SymShape* out = ShapeOf(g, slice.output());
  return out != nullptr && out->size() == 4 && ProvablyEqual(out->back(), keys) && from == Ints{in_front ? 1 : 0} &&
         steps == Ints{1} && (axes == Ints{3} || axes == Ints{-1});
}

// Masks and sink, and the operands of the product, whose sizes may be asked.
std::vector<ValueId> Sized(const Graph& g, const SinkForm& f) {
  std::vector<ValueId> like = f.masks;
  like.insert(like.end(), {f.sink, g.node(f.product).input(0), g.node(f.product).input(1)});
  return like;
}

// What masks and sink are broadcast to; false: nobody knows it, or it cannot be read.
bool Widen(const Graph& g, SinkForm& f) {
  f.wide = SymShape(3, Dim(1));
  f.wide.push_back(ShapeOf(g, f.scores)->back());
  const std::vector<ValueId> like = Sized(g, f);
  for (const ValueId v : like) {
    if (RankOf(g, v) != 4) return false;
  }
  for (size_t i = 0; i <= f.masks.size(); ++i) {
    const SymShape& s = *ShapeOf(g, like[i]);
    for (size_t axis = 0; axis < 3; ++axis) {
      if (IsOne(s, axis) || ProvablyEqual(s[axis], f.wide[axis])) continue;
      if (!IsOne(f.wide, axis)) return false;
      f.wide[axis] = s[axis];
    }
  }
  for (size_t axis = 0; axis < 4; ++axis) {
    if (!CanRead(g, f.wide, axis, like)) return false;
  }
  return true;
}

// Scores and sink of what the Softmax reads.
bool ReadJoint(const Graph& g, const Node& joint, const Node& slice, bool in_front, SinkForm& f, bool& for_each_head) {
  f.scores = joint.input(joint.op == Op::kConcat && in_front ? 1 : 0);
  const SymShape* scores = f.scores.valid() ? ShapeOf(g, f.scores) : nullptr;
  if (scores == nullptr || scores->size() != 4 || !DropsSink(g, slice, scores->back(), in_front)) return false;
  if (joint.op != Op::kConcat) {
    f.number = PaddedColumn(g, joint, in_front);
    for_each_head = true;
    return f.number && (*scores)[1].is_number();
  }
  const int64_t axis = joint.attrs.Int("axis", 0);
  if (joint.inputs.size() != 2 || (axis != 3 && axis != -1)) return false;
  const ValueId column = joint.input(in_front ? 0 : 1);
  f.sink = Narrow(g, column);
  for_each_head = f.sink.valid();
  if (!for_each_head) f.sink = column;
  const SymShape* sink = ShapeOf(g, f.sink);
  return sink != nullptr && sink->size() == 4 && IsOne(*sink, 3);
}

std::optional<SinkForm> ReadSink(const Graph& g, NodeId id) {
  SinkForm f;
  f.values = id;
  const Node& product_pv = g.node(id);
  const Node* slice = g.Producer(product_pv.input(0));
  if (slice == nullptr || slice->op != Op::kSlice || !g.HasOneUse(slice->output())) return {};
  f.probabilities = slice->input(0);
  const Node* softmax = g.Producer(f.probabilities);
  if (softmax == nullptr || softmax->op != Op::kSoftmax || !g.HasOneUse(f.probabilities)) return {};
  f.softmax = g.value(f.probabilities).producer;
  const int64_t axis = softmax->attrs.Int("axis", -1);
  const Node* joint = g.Producer(softmax->input(0));
  if ((axis != -1 && axis != 3) || joint == nullptr) return {};
  bool read = false, one_for_each_head = false;
  for (const bool in_front : {false, true}) read = read || ReadJoint(g, *joint, *slice, in_front, f, one_for_each_head);
  if (!read) return {};
  ValueId v = f.scores;
  const Node* n = g.Producer(v);
  for (; n != nullptr && n->op == Op::kAdd && g.HasOneUse(v); n = g.Producer(v)) {
    f.masks.push_back(n->input(1));
    v = n->input(0);
    if (RankOf(g, f.masks.back()) != 4 || DTypeOf(g, f.masks.back()) != DType::kF32) return {};
  }
  if (n != nullptr && n->op == Op::kMul && ConstScalar(g, n->input(1)) && g.HasOneUse(v)) {
    f.scale = g.value(v).producer;
    v = n->input(0);
    n = g.Producer(v);
  }
  if (n == nullptr || n->op != Op::kMatMul || !g.HasOneUse(v) || DTypeOf(g, v) != DType::kF32) return {};
  f.product = g.value(v).producer;
  if (one_for_each_head && f.masks.size() < 2) {
    if (!f.masks.empty()) f.mask = f.masks[0];
    f.masks.clear();
    return f;
  }
  return !f.number && Widen(g, f) ? std::optional(f) : std::nullopt;
}

// One more column of zeros at the end of `axis`.
ValueId Padded(Rewriter& rw, ValueId v, size_t axis) {
  Ints pads(8, 0);
  pads[4 + axis] = 1;
  SymShape shape = *ShapeOf(rw.graph(), v);
  shape[axis] = shape[axis] + Dim(1);
  const ValueId zero = rw.Constant(Tensor::ScalarF32(0.0f));
  return Make(rw, Op::kPad, {v, MakeInts(rw, pads), zero}, {}, Type{DType::kF32, std::move(shape)});
}

// Without a mask: zeros [1,H,1,Sk+1] but for the sink; with one: the mask for every head, then the sink.
ValueId SinkMask(Rewriter& rw, const SinkForm& f) {
  const Graph& g = rw.graph();
  const SymShape sink = *ShapeOf(g, f.sink), scores = *ShapeOf(g, f.scores);
  const auto shape_of = [&](ValueId v, int64_t axis) {
    return Make(rw, Op::kShape, {v}, {{"start", axis}, {"end", axis + 1}}, Type{DType::kS64, SymShape{Dim(1)}});
  };
  const Type five{DType::kS64, SymShape{Dim(4)}};
  const auto concat = [&](std::vector<ValueId> parts, int64_t axis, Type type) {
    return Make(rw, Op::kConcat, std::move(parts), {{"axis", axis}}, std::move(type));
  };
  const ValueId one = MakeInts(rw, {1}), heads = MakeInts(rw, {sink[1].number()});
  ValueId wide, last = f.sink;
  SymShape to;
  if (f.mask.valid()) {
    const SymShape m = *ShapeOf(g, f.mask);
    to = SymShape{m[0], sink[1], m[2], scores[3]};
    wide = Make(rw, Op::kExpand, {f.mask, concat({one, heads, one, shape_of(g.node(f.product).input(1), 3)}, 0, five)},
                {}, Type{DType::kF32, to});
    const SymShape column{m[0], sink[1], m[2], Dim(1)};
    last = Make(rw, Op::kExpand, {f.sink, concat({shape_of(f.mask, 0), heads, shape_of(f.mask, 2), one}, 0, five)}, {},
                Type{DType::kF32, column});
  } else {
    to = SymShape{Dim(1), sink[1], Dim(1), scores[3]};
    const ValueId zero = rw.Constant(Tensor::F32({1, 1, 1, 1}, {0.0f}));
    wide = Make(rw, Op::kExpand, {zero, concat({one, heads, one, shape_of(g.node(f.product).input(1), 3)}, 0, five)},
                {}, Type{DType::kF32, to});
  }
  SymShape all = to;
  all[3] = to[3] + Dim(1);
  return concat({wide, last}, 3, Type{DType::kF32, all});
}

// The sum of the masks for every head and query, then the sink.
ValueId WideSinkMask(Rewriter& rw, const SinkForm& f) {
  const Graph& g = rw.graph();
  const std::vector<ValueId> like = Sized(g, f);
  ValueId mask;
  for (const ValueId m : f.masks) {
    const Type type{DType::kF32, BroadcastShapes({ShapeOf(g, m), ShapeOf(g, mask.valid() ? mask : m)})};
    mask = mask.valid() ? Make(rw, Op::kAdd, {mask, m}, {}, type) : m;
  }
  if (!mask.valid()) mask = rw.Constant(Tensor::F32({1, 1, 1, 1}, {0.0f}));
  SymShape column = f.wide, all = f.wide;
  column[3] = Dim(1);
  all[3] = all[3] + Dim(1);
  const ValueId wide = ExpandTo(rw, mask, *ShapeOf(g, mask), f.wide, like);
  const ValueId last = ExpandTo(rw, f.sink, *ShapeOf(g, f.sink), column, like);
  return Make(rw, Op::kConcat, {wide, last}, {{"axis", int64_t{3}}}, Type{DType::kF32, all});
}

bool SinkToKey(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  auto f = ReadSink(g, id);
  if (!f) return false;
  for (ValueId v : {g.node(f->product).input(0), g.node(f->product).input(1), g.node(id).input(1)}) {
    if (RankOf(g, v) != 4) return false;
  }
  std::vector<NodeId> sources{id, f->softmax, f->product};
  rw.At(id, std::move(sources));
  SymShape shape = *ShapeOf(g, f->scores);
  if (f->number) {
    const int64_t heads = shape[1].number();
    f->sink = rw.Constant(Tensor::F32({1, heads, 1, 1}, std::vector<float>(static_cast<size_t>(heads), *f->number)));
  }
  shape[3] = shape[3] + Dim(1);
  const Type type{DType::kF32, shape};
  const Node qk = g.node(f->product);
  ValueId s = Make(rw, Op::kMatMul, {qk.input(0), Padded(rw, qk.input(1), 3)}, {}, type);
  if (f->scale.valid()) s = Make(rw, Op::kMul, {s, g.node(f->scale).input(1)}, {}, type);
  s = Make(rw, Op::kAdd, {s, f->wide.empty() ? SinkMask(rw, *f) : WideSinkMask(rw, *f)}, {}, type);
  const ValueId p = Make(rw, Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}, type);
  const NodeId old = g.value(g.node(id).input(0)).producer;
  const ValueId values = Padded(rw, g.node(id).input(1), 2);
  rw.SetInput(id, 0, p);
  rw.SetInput(id, 1, values);
  rw.EraseDead(old);
  return true;
}

}  // namespace

Result<bool> Probabilities(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "probabilities");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    rw.At(id, {id});
    if (graph.node(id).op == Op::kWhere) DropInfinities(rw, id);
    if (!graph.IsAlive(id) || graph.node(id).op != Op::kMatMul) continue;
    if (MaskToValues(rw, id) || SinkToKey(rw, id)) {
      run.log.push_back("probabilities: " + graph.node(id).name +
                        " takes its probabilities from one Softmax, unchanged");
    }
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
