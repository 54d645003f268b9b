// qdq: quantization stands where the arithmetic is.
// Before: DequantizeLinear(q) -> Reshape -> Transpose -> MatMul
// After:  q -> Reshape -> Transpose -> DequantizeLinear -> MatMul
//
// Before: x -> Reshape -> Transpose -> QuantizeLinear
// After:  x -> QuantizeLinear -> Reshape -> Transpose
//
// Before: x -> windows of a convolution -> QuantizeLinear
// After:  x -> QuantizeLinear -> windows, around which its zero point stands
//
// Before: q -> DequantizeLinear -> QuantizeLinear with the same parameters
// After:  q
//
// Views and windows move elements and compute nothing, so all of it is exact. Per axis only where the axis can be followed.
// Refused: Quantize across views that select (Slice, Split, Gather: more would be quantized than before) and across a
// view with other users (the view would be made twice), blocked quantization, parameters computed at run time per axis.
#include <cmath>
#include <utility>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"
#include "octavo/passes/unfold.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::canonical {

namespace {

struct Params {
  ValueId scale, zero_point;
  int64_t axis = -1;  // -1: per tensor
};

// Parameters of a Quantize or DequantizeLinear; empty for blocked ones and where the scale's rank is not known.
std::optional<Params> ParamsOf(const Graph& g, const Node& n) {
  if (n.attrs.Int("block_size", 0) != 0) return {};
  const int64_t rank = RankOf(g, n.input(1));
  const int64_t data_rank = RankOf(g, n.input(0));
  Params p{n.input(1), n.input(2), -1};
  const Tensor* scale = g.ConstantOf(n.input(1));
  if (rank == 0 || (scale != nullptr && scale->size() == 1)) return p;
  if (rank != 1 || data_rank < 0) return {};
  p.axis = n.attrs.Int("axis", 1);
  p.axis += p.axis < 0 ? data_rank : 0;
  return p;
}

// Where dim `axis` of the view's input goes; nothing where it does not stay one dim.
std::optional<int64_t> AxisThrough(const Graph& g, const Node& view, int64_t axis) {
  const SymShape* in = ShapeOf(g, view.input(0));
  const SymShape* out = ShapeOf(g, view.output());
  if (in == nullptr) return {};
  switch (view.op) {
    case Op::kTranspose: {
      const Ints perm = PermOf(view, static_cast<int64_t>(in->size()));
      for (size_t i = 0; i < perm.size(); ++i) {
        if (perm[i] == axis) return static_cast<int64_t>(i);
      }
      return {};
    }
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten: {  // the same dim, with as many elements in front of it and behind it
      if (out == nullptr) return {};
      Dim front = 1;
      for (int64_t i = 0; i < axis; ++i) front = front * (*in)[static_cast<size_t>(i)];
      Dim here = 1;
      for (size_t j = 0; j < out->size(); ++j) {
        if (ProvablyEqual(here, front) && ProvablyEqual((*out)[j], (*in)[static_cast<size_t>(axis)])) {
          return static_cast<int64_t>(j);
        }
        here = here * (*out)[j];
      }
      return {};
    }
    case Op::kGather: {
      const int64_t index_rank = RankOf(g, view.input(1));
      int64_t along = view.attrs.Int("axis", 0);
      along += along < 0 ? static_cast<int64_t>(in->size()) : 0;
      if (index_rank < 0 || along == axis) return {};
      return axis < along ? axis : axis + index_rank - 1;
    }
    case Op::kSlice:
    case Op::kSplit:
    case Op::kExpand: {
      if (out == nullptr || out->size() < in->size()) return {};
      const int64_t moved = axis + static_cast<int64_t>(out->size() - in->size());
      for (ValueId v : view.outputs) {
        const SymShape* s = v.valid() ? ShapeOf(g, v) : nullptr;
        if (s == nullptr || !ProvablyEqual((*s)[static_cast<size_t>(moved)], (*in)[static_cast<size_t>(axis)]))
          return {};
      }
      return moved;
    }
    default:
      return {};
  }
}

bool MovesElements(Op op) {
  return op == Op::kTranspose || op == Op::kExpand || op == Op::kGather || op == Op::kSlice || op == Op::kSplit ||
         IsReshapeLike(op);
}

Attrs WithAxis(Attrs attrs, const Params& p, int64_t axis) {
  attrs.Erase("axis");
  if (p.axis >= 0) attrs.Set("axis", axis);
  return attrs;
}

// view(DequantizeLinear(q)) -> DequantizeLinear(view(q))
bool SinkDequantize(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& view = g.node(id);
  if (!MovesElements(view.op) || !g.IsFrom(view.input(0), Op::kDequantizeLinear)) return false;
  const Node& dq = *g.Producer(view.input(0));
  const auto params = ParamsOf(g, dq);
  if (!params) return false;
  int64_t axis = -1;
  if (params->axis >= 0) {
    const auto moved = AxisThrough(g, view, params->axis);
    if (!moved) return false;
    axis = *moved;
  }
  // The parameters must stand before the view's place in the order: they do, for they stand before dq.
  const NodeId old = g.value(view.input(0)).producer;
  const Attrs attrs = WithAxis(dq.attrs, *params, axis);
  std::vector<ValueId> inputs = view.inputs;
  const DType narrow = DTypeOf(g, dq.input(0));
  inputs[0] = dq.input(0);
  const std::vector<ValueId> outputs = view.outputs;
  const NodeId moved = rw.CreateN(view.op, std::move(inputs), outputs.size(), view.attrs);
  rw.At(id, {id, old});
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId v = g.node(moved).outputs[i];
    if (!outputs[i].valid()) {
      rw.graph().DropOutput(moved, i);
      continue;
    }
    Type type = TypeOf(g, outputs[i]);
    rw.graph().SetType(v, Type{narrow, type.shape});
    std::vector<ValueId> dq_inputs{v, params->scale};
    if (params->zero_point.valid()) dq_inputs.push_back(params->zero_point);
    rw.Replace(outputs[i], Make(rw, Op::kDequantizeLinear, std::move(dq_inputs), attrs, std::move(type)));
  }
  rw.EraseDead(id);
  return true;
}

// The axis in front of the view that becomes `axis` behind it.
std::optional<int64_t> AxisBefore(const Graph& g, const Node& view, int64_t axis) {
  for (int64_t i = 0; i < RankOf(g, view.input(0)); ++i) {
    if (AxisThrough(g, view, i) == axis) return i;
  }
  return {};
}

// A Gather that repeats: fewer elements stand in front of it than behind.
bool Repeats(const Graph& g, const Node& gather) {
  const SymShape* in = ShapeOf(g, gather.input(0));
  const Tensor* index = g.ConstantOf(gather.input(1));
  if (gather.op != Op::kGather || in == nullptr || in->empty() || index == nullptr || index->rank() != 1) return false;
  int64_t axis = gather.attrs.Int("axis", 0);
  axis += axis < 0 ? static_cast<int64_t>(in->size()) : 0;
  const Dim& dim = (*in)[static_cast<size_t>(axis)];
  return dim.is_number() && dim.number() < index->size();
}

// QuantizeLinear(view(x)) -> view(QuantizeLinear(x))
bool HoistQuantize(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& q = g.node(id);
  const Node* view = g.Producer(q.input(0));
  if (view == nullptr) return false;
  if (view->op != Op::kTranspose && view->op != Op::kExpand && !IsReshapeLike(view->op) && !Repeats(g, *view))
    return false;
  if (!g.HasOneUse(q.input(0)) || g.ConstantOf(view->input(0)) != nullptr) return false;
  const auto params = ParamsOf(g, q);
  if (!params) return false;
  int64_t axis = -1;
  if (params->axis >= 0) {
    const auto before = AxisBefore(g, *view, params->axis);
    if (!before) return false;
    axis = *before;
  }
  const NodeId old = g.value(q.input(0)).producer;
  const Type type = TypeOf(g, q.output());
  std::vector<ValueId> inputs = q.inputs;
  inputs[0] = view->input(0);
  const Type narrow{type.dtype, TypeOf(g, view->input(0)).shape};
  const ValueId quantized = Make(rw, Op::kQuantizeLinear, std::move(inputs), WithAxis(q.attrs, *params, axis), narrow);
  rw.At(id, {old});
  inputs = view->inputs;
  inputs[0] = quantized;
  ReplaceNode(rw, id, Make(rw, view->op, std::move(inputs), view->attrs, type));
  return true;
}

// QuantizeLinear(windows of x) -> windows of QuantizeLinear(x), which has fewer elements. What pads x is the code of 0 then: round(0 / scale) + zero point.
bool HoistFromWindows(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& q = g.node(id);
  const auto params = ParamsOf(g, q);
  const DType codes = DTypeOf(g, q.output());
  if (!params || params->axis >= 0 || !quant::IsInt8(codes) || !g.HasOneUse(q.input(0))) return false;
  const std::optional<ir::Unfold> unfold = ir::UnfoldAt(g, q.input(0));
  if (!unfold || g.ConstantOf(unfold->x) != nullptr) return false;
  if (unfold->padding.valid() && ConstScalar(g, unfold->padding) != 0.0) return false;
  const Tensor* zero = g.ConstantOf(q.input(2));
  if (q.input(2).valid() && zero == nullptr) return false;
  const SymShape windows = *ShapeOf(g, q.input(0));
  std::vector<ValueId> inputs = q.inputs;
  inputs[0] = unfold->x;
  const ValueId quantized =
      Make(rw, Op::kQuantizeLinear, std::move(inputs), q.attrs, {codes, TypeOf(g, unfold->x).shape});
  rw.At(id, unfold->nodes);
  const ValueId padding = zero == nullptr ? ValueId{} : rw.Constant(zero->Reshaped({}));
  ReplaceNode(rw, id,
              MakeUnfold(rw, quantized, unfold->windows, padding, SymShape(windows.begin() + 1, windows.end() - 1)));
  return true;
}

bool SameConstant(const Graph& g, ValueId a, ValueId b) {
  if (a == b) return true;
  const Tensor* ta = g.ConstantOf(a);
  const Tensor* tb = g.ConstantOf(b);
  return ta != nullptr && tb != nullptr && ta->SameBits(*tb);
}

// Every scale is such that (n * s) / s rounds back to n for |n| <= 2^17: no overflow, no subnormal product.
bool IsOrdinaryScale(const Graph& g, ValueId v) {
  const Tensor* t = g.ConstantOf(v);
  if (t == nullptr || t->dtype() != DType::kF32) return false;
  for (float s : t->ToFloats()) {
    if (!(s >= 0x1p-100f && s <= 0x1p100f)) return false;
  }
  return true;
}

// QuantizeLinear(DequantizeLinear(q)) with the same parameters -> q. n*s and the quotient by s are each rounded once,
// so the quotient is within 2^-22 of n relatively: less than a half for 8 and 16 bits, and rne gives n.
bool DropRoundTrip(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& q = g.node(id);
  const Node* dq = g.Producer(q.input(0));
  if (dq == nullptr || dq->op != Op::kDequantizeLinear) return false;
  const DType from = DTypeOf(g, dq->input(0)), to = DTypeOf(g, q.output());
  const bool narrow = from == DType::kU8 || from == DType::kS8 || from == DType::kU16 || from == DType::kS16;
  if (from != to || !narrow || !IsOrdinaryScale(g, q.input(1))) return false;
  const auto a = ParamsOf(g, *dq), b = ParamsOf(g, q);
  if (!a || !b || a->axis != b->axis || !SameConstant(g, a->scale, b->scale)) return false;
  const auto is_zero = [&g](ValueId v) { return !v.valid() || ConstScalar(g, v) == 0.0; };
  const bool same_zero = a->zero_point.valid() == b->zero_point.valid() &&
                         (!a->zero_point.valid() || SameConstant(g, a->zero_point, b->zero_point));
  if (!same_zero && !(is_zero(a->zero_point) && is_zero(b->zero_point))) return false;
  ReplaceNode(rw, id, dq->input(0));
  return true;
}

}  // namespace

Result<bool> Qdq(Graph& graph, PassRun&) {
  bool changed = false;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
    Rewriter rw(graph, "qdq");
    for (NodeId id : graph.NodesInOrder()) {
      if (!graph.IsAlive(id)) continue;
      rw.At(id, {id});
      if (graph.node(id).op == Op::kQuantizeLinear) {
        DropRoundTrip(rw, id) || HoistQuantize(rw, id) || HoistFromWindows(rw, id);
      } else {
        SinkDequantize(rw, id);
      }
    }
    if (!rw.changed()) break;
    changed = true;
  }
  return changed;
}

}  // namespace octavo::passes::canonical
