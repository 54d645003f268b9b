// linear: every fully connected layer is MatMul(x, W[K,N]) then Add(., bias[N]), the bias second.
// Before: Add(b, MatMul(x, W))                          After: Add(MatMul(x, W), b)
// Before: Gemm(x, W [N,K], b, transB=1)                 After: Add(MatMul(x, W^T), b)
// Before: MatMul(x, Transpose(DequantizeLinear(Wq)))    After: MatMul(x, DequantizeLinear(Wq^T))    by `qdq` and `fold`
// Before: MatMul(x, W [1,K,N])                          After: MatMul(x, W [K,N])
// Before: Add(Reshape(MatMul(x, W), [0,0,4,16]), b [4,16])   After: Reshape(Add(MatMul(x, W), b [64]), [0,0,4,16])   (Keras, JAX: a bias by heads)
// Before: Conv(x [B,C,T,H,W], W [N,C,T,H,W], b)         After: Reshape(Add(MatMul(Reshape(x, [B,C*T*H*W]), W^T), b), [B,N,1,1,1])
//         (one patch a row, as the towers of Qwen VL, GLM and others read pictures; not kernel 1, which is a gate)
// Gemm between Reshapes to 2-D and back: the Reshapes go in `views`. alpha and beta become a Mul unless exactly 1.
// Floats: addition commutes exactly, and the interpreter's Gemm is its MatMul, then the sum, in that order.
#include <utility>

#include "octavo/ir/interpret.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"
#include "octavo/passes/unfold.h"

namespace octavo::passes::canonical {

namespace {

// W^T of a constant matrix, per-channel Dequantize included; a Transpose node for everything else.
ValueId Transposed(Rewriter& rw, ValueId w) {
  const Graph& g = rw.graph();
  const Node* p = g.Producer(w);
  if (p == nullptr || p->op != Op::kDequantizeLinear || p->attrs.Int("block_size", 0) != 0) {
    return MakeTranspose(rw, w, {1, 0});  // a constant is evaluated by `fold`
  }
  const Tensor* scale = g.ConstantOf(p->input(1));
  if (scale == nullptr || RankOf(g, p->input(0)) != 2) return MakeTranspose(rw, w, {1, 0});
  std::vector<ValueId> inputs = p->inputs;
  Attrs attrs = p->attrs;
  if (scale->rank() == 1) {
    const int64_t axis = attrs.Int("axis", 1);
    attrs.Set("axis", 1 - (axis < 0 ? axis + 2 : axis));
  }
  Type type = TypeOf(g, w);
  if (type.shape) type.shape = Permuted(*type.shape, {1, 0});
  inputs[0] = MakeTranspose(rw, inputs[0], {1, 0});
  return Make(rw, Op::kDequantizeLinear, std::move(inputs), std::move(attrs), std::move(type));
}

// A scalar of the value's own float type; invalid for other types.
ValueId ScalarLike(Rewriter& rw, ValueId like, float value) {
  const DType dtype = DTypeOf(rw.graph(), like);
  if (dtype == DType::kF32) return rw.Constant(Tensor::ScalarF32(value));
  const ValueId f32 = rw.Constant(Tensor::ScalarF32(value));
  return Make(rw, Op::kCast, {f32}, Attrs{{"to", static_cast<int64_t>(dtype)}}, Type{dtype, SymShape{}});
}

bool LowerGemm(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kGemm) return false;
  const Type type = TypeOf(g, n.output());
  const float alpha = n.attrs.Float("alpha", 1.0f), beta = n.attrs.Float("beta", 1.0f);
  if (!IsPlainFloat(DTypeOf(g, n.input(0))) && (alpha != 1.0f || beta != 1.0f)) return false;
  const ValueId c = n.input(2);
  const bool trans_a = n.attrs.Int("transA", 0) != 0, trans_b = n.attrs.Int("transB", 0) != 0;
  const ValueId a_in = n.input(0), b_in = n.input(1);
  const ValueId a = trans_a ? MakeTranspose(rw, a_in, {1, 0}) : a_in;
  const ValueId b = trans_b ? Transposed(rw, b_in) : b_in;
  ValueId y = Make(rw, Op::kMatMul, {a, b}, {}, type);
  if (alpha != 1.0f) y = Make(rw, Op::kMul, {y, ScalarLike(rw, a_in, alpha)}, {}, type);
  if (c.valid() && beta != 0.0f) {
    const ValueId bias = beta == 1.0f ? c : Make(rw, Op::kMul, {c, ScalarLike(rw, a_in, beta)}, {}, TypeOf(g, c));
    y = Make(rw, Op::kAdd, {y, bias}, {}, type);
  }
  ReplaceNode(rw, id, y);
  return true;
}

// A Conv with one window, which is all of x.
bool LowerWholeConv(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Tensor* w = n.op == Op::kConv ? g.ConstantOf(n.input(1)) : nullptr;
  if (w == nullptr || !IsPlainFloat(w->dtype())) return false;
  const std::optional<ir::Windows> windows = WindowsOf(g, n, *w);
  if (!windows || windows->padded() || ir::ElementCount(windows->kernel) == 1) return false;
  const SymShape in = *ShapeOf(g, n.input(0));
  for (size_t i = 2; i < in.size(); ++i) {
    if (!IsNumber(in[i], windows->kernel[i - 2]) || (windows->dilations[i - 2] != 1 && windows->kernel[i - 2] != 1))
      return false;
  }
  const int64_t filters = w->shape()[0], depth = w->size() / filters;
  const DType dtype = DTypeOf(g, n.output());
  const Type type{dtype, SymShape{in[0], Dim(filters)}};
  const ValueId rows = MakeReshape(rw, n.input(0), {in[0], Dim(depth)});
  if (!rows.valid()) return false;
  const ValueId matrix = rw.Constant(w->Reshaped({filters, depth}), g.value(n.input(1)).name + "_rows");
  ValueId y = Make(rw, Op::kMatMul, {rows, MakeTranspose(rw, matrix, {1, 0})}, {}, type);
  if (n.input(2).valid()) y = Make(rw, Op::kAdd, {y, n.input(2)}, {}, type);
  SymShape out{in[0], Dim(filters)};
  out.resize(in.size(), Dim(1));
  ReplaceNode(rw, id, MakeReshape(rw, y, out));
  return true;
}

// A constant comes second in a sum or a product.
bool ConstantSecond(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kAdd && n.op != Op::kMul) return false;
  const ValueId a = n.input(0), b = n.input(1);
  if (!IsConstantLike(g, a) || IsConstantLike(g, b)) return false;
  rw.SetInput(id, 0, b);
  rw.SetInput(id, 1, a);
  return true;
}

// Leading dims of a constant that are 1 and that broadcasting would put back.
bool DropLeadingOnes(Rewriter& rw, NodeId id, size_t slot, size_t kept) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Tensor* t = g.ConstantOf(n.input(slot));
  if (t == nullptr || t->dtype() == DType::kString) return false;
  const ir::Shape shape = t->shape();
  if (shape.size() <= kept || RankOf(g, n.input(1 - slot)) < static_cast<int64_t>(shape.size())) return false;
  const auto cut = shape.end() - static_cast<std::ptrdiff_t>(kept);
  for (auto it = shape.begin(); it != cut; ++it) {
    if (*it != 1) return false;
  }
  const ValueId old = n.input(slot);
  const Tensor small = t->Reshaped(ir::Shape(cut, shape.end()));
  rw.SetInput(id, slot, rw.Constant(small, g.value(old).name));
  rw.EraseDead(g.value(old).producer);
  return true;
}

bool FlattenConstants(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op == Op::kMatMul) return DropLeadingOnes(rw, id, 1, 2);
  if (n.op != Op::kAdd) return false;
  const Node* product = g.Producer(n.input(0));
  const bool linear = product != nullptr && product->op == Op::kMatMul && IsConstantLike(g, product->input(1));
  return linear && DropLeadingOnes(rw, id, 1, 1);
}

// The elements of a bias by heads, where the Linear has its columns.
bool BiasBeforeReshape(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Node* view = n.op == Op::kAdd ? g.Producer(n.input(0)) : nullptr;
  if (view == nullptr || !IsReshapeLike(view->op) || !g.HasOneUse(n.input(0))) return false;
  const Node* product = g.Producer(view->input(0));
  const Tensor* bias = g.ConstantOf(n.input(1));
  const SymShape *in = ShapeOf(g, view->input(0)), *out = ShapeOf(g, n.input(0));
  if (product == nullptr || product->op != Op::kMatMul || !IsConstantLike(g, product->input(1)) || bias == nullptr ||
      in == nullptr || out == nullptr || !g.HasOneUse(view->input(0)))
    return false;
  if (in->empty() || out->size() <= in->size()) return false;
  const size_t lead = in->size() - 1, rank = out->size() - lead;
  if (bias->shape().size() < rank || bias->shape().size() > out->size()) return false;
  ir::Shape heads(bias->shape().end() - static_cast<int64_t>(rank), bias->shape().end());
  if (bias->size() != ir::ElementCount(heads)) return false;  // JAX writes dims of 1 in front
  for (size_t i = 0; i < out->size(); ++i) {
    if (!ProvablyEqual((*out)[i], i < lead ? (*in)[i] : Dim(heads[i - lead]))) return false;
  }
  const SymShape target = *out;
  const ValueId flat = rw.Constant(bias->Reshaped({bias->size()}), g.value(n.input(1)).name);
  const ValueId sum = Make(rw, Op::kAdd, {view->input(0), flat}, {}, TypeOf(g, view->input(0)));
  const ValueId y = MakeReshape(rw, sum, target);
  ReplaceNode(rw, id, y);
  return true;
}

}  // namespace

Result<bool> Linear(Graph& graph, PassRun&) {
  bool changed = false;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
    Rewriter rw(graph, "linear");
    for (NodeId id : graph.NodesInOrder()) {
      if (!graph.IsAlive(id)) continue;
      rw.At(id, {id});
      LowerGemm(rw, id) || LowerWholeConv(rw, id) || ConstantSecond(rw, id) || FlattenConstants(rw, id) ||
          BiasBeforeReshape(rw, id);
    }
    if (!rw.changed()) break;
    changed = true;
  }
  return changed;
}

}  // namespace octavo::passes::canonical
