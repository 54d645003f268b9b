// Before: y = Mul(Cast(MatMulInteger(xq, w, x_zp, w_zp)), Mul(x_scale, w_scale))     what dynamic quantizers write
// After:  y = MatMul(DequantizeLinear(xq, x_scale, x_zp), DequantizeLinear(w, w_scale, w_zp))
//         and QLinearMatMul as requantized.cc says; weights around any zero point as centered.cc says
// Exact: a MatMul of DequantizeLinears means float(integer product) * (x_scale * w_scale), the
// same two roundings. The scale of x may be computed at run time, as DynamicQuantizeLinear does. Left, with a line in
// the log: weights or their scales that are no constants, scales that are neither one nor one per column.
#include <algorithm>
#include <optional>

#include "octavo/passes/attention.h"
#include "octavo/passes/vendor/centered.h"
#include "octavo/passes/vendor/requantized.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::vendor {

using ir::DType;
using ir::Tensor;

namespace {

struct Form {
  NodeId product;
  ValueId x_scale, w_scale;
};

bool IsScalarValue(const Graph& g, ValueId v) {
  const auto& shape = g.value(v).type.shape;
  return g.value(v).type.dtype == DType::kF32 && shape && shape->empty();
}

// The MatMulInteger behind `cast`, used by nobody else.
std::optional<NodeId> ProductBehind(const Graph& g, ValueId cast) {
  const Node* c = g.Producer(cast);
  if (c == nullptr || c->op != Op::kCast || c->attrs.Int("to", 0) != static_cast<int64_t>(DType::kF32)) return {};
  if (!g.HasOneUse(cast) || !g.HasOneUse(c->input(0)) || !g.IsFrom(c->input(0), Op::kMatMulInteger)) return {};
  return g.value(c->input(0)).producer;
}

// The parts where node `id` ends such a chain; a sentence where it nearly does.
std::optional<Form> FormAt(const Graph& g, const Node& mul, std::string& why) {
  for (size_t i = 0; i < 2; ++i) {
    const auto product = ProductBehind(g, mul.input(i));
    if (!product) continue;
    const Node& m = g.node(*product);
    const Tensor* w = g.ConstantOf(m.input(1));
    if (w == nullptr || w->rank() != 2) return why = "its weight is not a constant matrix", std::nullopt;
    const Node* scales = g.Producer(mul.input(1 - i));
    if (scales == nullptr || scales->op != Op::kMul)
      return why = "the factor behind it is not a product of two scales", std::nullopt;
    for (size_t j = 0; j < 2; ++j) {
      const Tensor* of_w = g.ConstantOf(scales->input(j));
      if (of_w == nullptr || !IsScalarValue(g, scales->input(1 - j))) continue;
      const bool fits = of_w->size() == 1 || (of_w->rank() == 1 && of_w->size() == w->shape()[1]);
      if (of_w->dtype() == DType::kF32 && fits) return Form{*product, scales->input(1 - j), scales->input(j)};
    }
    why = "its scales are not one number for the activation and a constant for the weight or each of its columns";
    return std::nullopt;
  }
  return std::nullopt;
}

// A zero point with as many elements as the scale.
std::optional<Tensor> ZeroLike(const Tensor* zero, const Tensor& scale, DType dtype) {
  if (zero == nullptr) return Tensor::Zeros(dtype, scale.shape());
  if (zero->size() == scale.size()) return zero->Reshaped(scale.shape());
  const std::vector<int64_t> values = zero->ToInts();
  for (int64_t v : values) {
    if (v != values[0]) return std::nullopt;
  }
  std::vector<uint8_t> all(static_cast<size_t>(scale.size()), static_cast<uint8_t>(values[0]));
  return Tensor::Of<uint8_t>(dtype, scale.shape(), all);
}

bool Rewrite(Rewriter& rw, NodeId id, const Form& form) {
  const Graph& g = rw.graph();
  const Node m = g.node(form.product);
  const Tensor scale = *g.ConstantOf(form.w_scale);
  const Tensor* zero = m.input(3).valid() ? g.ConstantOf(m.input(3)) : nullptr;
  if (m.input(3).valid() && zero == nullptr) return false;
  const ValueId x_zero = m.input(2);
  if (x_zero.valid()) {
    const auto& shape = g.value(x_zero).type.shape;
    if (!shape || !shape->empty()) return false;
  }
  const Tensor column_scale = scale.size() == 1 ? scale.Reshaped({}) : scale;
  const auto w_zero = ZeroLike(zero, column_scale, g.ConstantOf(m.input(1))->dtype());
  if (!w_zero) return false;
  rw.At(id, {form.product, id});
  const ValueId x =
      rw.Create(Op::kDequantizeLinear,
                {m.input(0), form.x_scale,
                 x_zero.valid() ? x_zero : rw.Constant(Tensor::Zeros(g.value(m.input(0)).type.dtype, {}))});
  const ValueId w = rw.Create(Op::kDequantizeLinear, {m.input(1), rw.Constant(column_scale), rw.Constant(*w_zero)},
                              {{"axis", int64_t{1}}});
  rw.Replace(g.node(id).output(), rw.Create(Op::kMatMul, {x, w}));
  rw.EraseDead(id);
  return true;
}

}  // namespace

bool IsQuantized(const Graph& graph) {
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    const Op op = n.op;
    // A dequantized table of weights: it keeps its codes, so nothing is left that calibration could choose for it.
    const Tensor* table = op == Op::kDequantizeLinear ? graph.ConstantOf(n.input(0)) : nullptr;
    if (table != nullptr && table->rank() >= 2) return true;
    if (op == Op::kQuantizeLinear || op == Op::kDynamicQuantizeLinear || op == Op::kMatMulInteger ||
        op == Op::kQLinearMatMul || op == Op::kLinearBlocked || op == Op::kQuantizedLinear || op == Op::kQuantizedQkv ||
        op == Op::kQuantizedSdpa) {
      return true;
    }
  }
  return false;
}

int CountLooseProducts(const Graph& graph) {
  const auto has_codes = [&](ValueId v) {
    const Node* n = v.valid() ? graph.Producer(v) : nullptr;
    if (n == nullptr || n->op != Op::kDequantizeLinear) return false;
    const DType codes = graph.value(n->input(0)).type.dtype;
    return codes == DType::kUndefined || quant::IsCode8(codes);  // a graph as it was read has few types
  };
  int count = 0;
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    const bool of_codes = (n.op == Op::kMatMul || n.op == Op::kGemm) && has_codes(n.input(0)) && has_codes(n.input(1));
    count += of_codes || n.op == Op::kMatMulInteger || n.op == Op::kQLinearMatMul;
  }
  return count;
}

Result<bool> IntegerForm(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "integer_form");
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id) && graph.node(id).op == Op::kQLinearMatMul) DequantizeProduct(rw, id);
    if (!graph.IsAlive(id) || graph.node(id).op != Op::kMul) continue;
    std::string why;
    const auto form = FormAt(graph, graph.node(id), why);
    if (form && !Rewrite(rw, id, *form)) why = "its zero points are not constants of the form of their scales";
    if (!why.empty()) run.Leave("integer_form", graph.node(id), "stays as it is: " + why);
  }
  OCTAVO_TRY([[maybe_unused]] const ir::Inference typed, ir::Inference::Run(graph));  // of what is new
  CenterWeights(rw);
  return rw.changed();
}

}  // namespace octavo::passes::vendor
