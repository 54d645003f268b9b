// widen: attention in f16 or bf16 is computed in f32, between Casts.
// Before: MatMul(Softmax(Mul(MatMul(q, kT), s) + mask), v)                              all f16
// After:  Cast(MatMul(Softmax(Mul(MatMul(Cast q, Cast kT), s) + Cast mask), Cast v))    f32 inside
// Casts to f32 of the operands stand above their views, so that head splits stay next to the product.
// Not bit-exact: what was rounded to 16 bits after every op is rounded once at the end, so results move by a few units in the
// last place of the 16-bit type, towards the exact value. x86 has kernels for f32, not for f16. A mask value that f16 writes
// for minus infinity, -65504, is written -3.4e38, so that it swallows scores as it does in f16.
// ONNX's Attention takes f32 as a whole: Q, K, V, a mask of floats and caches; what it makes is cast back, its scores are no output.
// Untouched: products whose scores reach no Softmax.
#include <algorithm>
#include <limits>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxSteps = 16;

bool IsNarrow(DType d) { return d == DType::kF16 || d == DType::kBF16; }

ValueId CastTo(Rewriter& rw, ValueId v, DType to) {
  const Type type{to, TypeOf(rw.graph(), v).shape};
  return Make(rw, Op::kCast, {v}, {{"to", static_cast<int64_t>(to)}}, type);
}

// v in f32: a constant is cast by `fold`, a Cast from f32 is taken back, views are made again above.
ValueId Wide(Rewriter& rw, ValueId v, int depth = kMaxSteps) {
  const Graph& g = rw.graph();
  if (DTypeOf(g, v) == DType::kF32) return v;
  const Node* n = g.Producer(v);
  if (n != nullptr && n->op == Op::kCast && DTypeOf(g, n->input(0)) == DType::kF32) return n->input(0);
  const bool view = n != nullptr && (n->op == Op::kTranspose || n->op == Op::kExpand || IsReshapeLike(n->op));
  if (!view || depth <= 0) return CastTo(rw, v, DType::kF32);
  const Node copy = *n;
  std::vector<ValueId> inputs = copy.inputs;
  inputs[0] = Wide(rw, inputs[0], depth - 1);
  return Make(rw, copy.op, std::move(inputs), copy.attrs, Type{DType::kF32, TypeOf(g, v).shape});
}

// The same, and f16's lowest number becomes f32's.
ValueId WideMask(Rewriter& rw, ValueId v) {
  const Graph& g = rw.graph();
  const bool half = DTypeOf(g, v) == DType::kF16;
  const ValueId wide = Wide(rw, v);
  if (!half || !TypeOf(g, wide).shape) return wide;
  const auto shape = TypeOf(g, wide).shape;
  const ValueId low = rw.Constant(Tensor::ScalarF32(-65504.0f)),
                least = rw.Constant(Tensor::ScalarF32(std::numeric_limits<float>::lowest()));
  const ValueId masked = Make(rw, Op::kEqual, {wide, low}, {}, Type{DType::kBool, shape});
  return Make(rw, Op::kWhere, {masked, least, wide}, {}, Type{DType::kF32, shape});
}

bool ReachesSoftmax(const Graph& g, ValueId v, int depth) {
  if (depth <= 0) return false;
  for (const ir::Use& u : g.value(v).uses) {
    const Node& n = g.node(u.node);
    if (n.op == Op::kSoftmax) return true;
    const bool passes = n.op == Op::kAdd || n.op == Op::kMul || n.op == Op::kDiv || n.op == Op::kSub ||
                        n.op == Op::kWhere || n.op == Op::kTanh || n.op == Op::kCast || n.op == Op::kReshape;
    if (passes && ReachesSoftmax(g, n.output(), depth - 1)) return true;
  }
  return false;
}

// v = Cast16(x) of an f32 x.
bool IsNarrowed(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  return n != nullptr && n->op == Op::kCast && IsNarrow(DTypeOf(g, v)) && DTypeOf(g, n->input(0)) == DType::kF32;
}

// The node again on f32 operands; its result is cast back.
void Rebuild(Rewriter& rw, NodeId id, size_t first, size_t last) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Type type = TypeOf(g, n.output());
  std::vector<ValueId> inputs = n.inputs;
  for (size_t i = first; i <= last && i < inputs.size(); ++i) {
    const bool data = IsNarrowed(g, inputs[i]) || n.op == Op::kMatMul;
    inputs[i] = data ? Wide(rw, inputs[i]) : WideMask(rw, inputs[i]);
  }
  const bool is_bool = type.dtype == DType::kBool;  // IsNaN
  const ValueId wide = Make(rw, n.op, std::move(inputs), n.attrs, is_bool ? type : Type{DType::kF32, type.shape});
  ReplaceNode(rw, id, is_bool ? wide : CastTo(rw, wide, type.dtype));
}

// Cast32(Cast16(x)) between product and Softmax, or behind it.
bool DropRounding(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (DTypeOf(g, n.output()) != DType::kF32 || !IsNarrowed(g, n.input(0))) return false;
  if (!ReachesSoftmax(g, n.output(), kMaxSteps)) return false;
  ReplaceNode(rw, id, g.Producer(n.input(0))->input(0));
  return true;
}

bool WidenAttention(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  constexpr size_t kMask = 3, kPastValue = 5, kScores = 3;
  const bool scores = n.outputs.size() > kScores && n.output(kScores).valid();
  if (!IsNarrow(DTypeOf(g, n.output())) || scores) return false;
  std::vector<ValueId> inputs = n.inputs;
  for (size_t i = 0; i < inputs.size() && i <= kPastValue; ++i) {
    if (!inputs[i].valid() || !IsNarrow(DTypeOf(g, inputs[i]))) continue;
    inputs[i] = i == kMask ? WideMask(rw, inputs[i]) : Wide(rw, inputs[i]);
  }
  Attrs attrs = n.attrs;
  attrs.Erase("softmax_precision");  // 16 bits would be less than now, and f64 is none of a 16-bit model
  const NodeId made = rw.CreateN(Op::kAttention, std::move(inputs), n.outputs.size(), std::move(attrs));
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    if (!n.output(i).valid()) continue;
    const Type type = TypeOf(g, n.output(i));
    const ValueId wide = g.node(made).output(i);
    rw.graph().SetType(wide, {DType::kF32, type.shape});
    rw.Replace(n.output(i), CastTo(rw, wide, type.dtype));
  }
  rw.EraseDead(id);
  return true;
}

bool WidenNode(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const auto narrowed = [&](size_t slot) { return n.input(slot).valid() && IsNarrowed(g, n.input(slot)); };
  const auto from_softmax = [&](ValueId v) {
    const Node* p = g.Producer(v);  // Cast16(Softmax), or of a Where that writes 0 among them
    const Node* q = p != nullptr ? g.Producer(p->input(0)) : nullptr;
    if (q != nullptr && q->op == Op::kWhere) {
      return g.IsFrom(q->input(1), Op::kSoftmax) || g.IsFrom(q->input(2), Op::kSoftmax);
    }
    return q != nullptr && q->op == Op::kSoftmax;
  };
  const bool narrow = IsNarrow(DTypeOf(g, n.output()));
  switch (n.op) {
    case Op::kMatMul: {
      const bool scores =
          !IsConstantLike(g, n.input(0)) && !IsConstantLike(g, n.input(1)) && ReachesSoftmax(g, n.output(), kMaxSteps);
      if (!narrow || !(scores || (narrowed(0) && from_softmax(n.input(0))))) return false;
      return Rebuild(rw, id, 0, 1), true;
    }
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
      if (!narrow || !(narrowed(0) || narrowed(1)) || !ReachesSoftmax(g, n.output(), kMaxSteps)) return false;
      return Rebuild(rw, id, 0, 1), true;
    case Op::kTanh:
    case Op::kReshape:
      if (!narrow || !narrowed(0) || !ReachesSoftmax(g, n.output(), kMaxSteps)) return false;
      return Rebuild(rw, id, 0, 0), true;
    case Op::kSoftmax:
      if (!narrow || !narrowed(0)) return false;
      return Rebuild(rw, id, 0, 0), true;
    case Op::kIsNaN:
      if (!narrowed(0) || !from_softmax(n.input(0))) return false;
      return Rebuild(rw, id, 0, 0), true;
    case Op::kWhere: {
      const bool data = narrowed(1) || narrowed(2);
      const bool guard = (narrowed(1) && from_softmax(n.input(1))) || (narrowed(2) && from_softmax(n.input(2)));
      if (!narrow || !data || !(guard || ReachesSoftmax(g, n.output(), kMaxSteps))) return false;
      return Rebuild(rw, id, 1, 2), true;
    }
    case Op::kAttention:
      return WidenAttention(rw, id);
    case Op::kCast:
      return DropRounding(rw, id);
    default:
      return false;
  }
}

}  // namespace

Result<bool> Widen(Graph& graph, PassRun& run) {
  const auto values = graph.value_capacity();
  bool narrow = false;
  for (size_t i = 0; i < values && !narrow; ++i) {
    const ValueId v{static_cast<uint32_t>(i)};
    narrow = graph.IsAlive(v) && IsNarrow(graph.value(v).type.dtype);
  }
  if (!narrow) return false;
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "widen");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    rw.At(id, {id});
    WidenNode(rw, id);
  }
  if (rw.changed()) run.log.emplace_back("widen: 16-bit attention is computed in f32");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
