// Before: y = MatMul(DequantizeLinear(x), DequantizeLinear(w)) [+ bias] [activation] [QuantizeLinear]
// After:  y = LinearInt8(x, w, bias, y_scale, y_zp), activation as attribute
// Shapes: x u8/s8 [..,K], per tensor, its parameters constant or computed (dynamic)   w s8 [K,N] constant, symmetric, per tensor or per column   bias f32 [N] constant
//         or x and w both fp8 (E4M3FN or E5M2), then the output may be fp8 too
// Exact: the body of LinearInt8 is what stood there (ir/functions.h).
// Refuses: weights with a zero point, blocked scales, bias that is not a constant vector of the columns.
#include <algorithm>
#include <format>

#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

Verdict CheckWeights(const Match& m, Var w, Var wd, Var bias) {
  const Graph& g = m.graph();
  const Node& dq = m.at(wd);
  const ir::Tensor& t = *g.ConstantOf(m[w]);
  if (t.rank() != 2) return Shape(std::format("the weight has rank {}, not 2", t.rank()));
  const ir::Tensor* scale = g.ConstantOf(dq.input(1));
  if (scale == nullptr) return Illegal("the weight's scale is not a constant");
  const int64_t n = t.shape()[1];
  const int64_t axis = dq.attrs.Int("axis", 1);
  if (scale->size() != 1 && (scale->size() != n || (axis != 1 && axis != -1))) {
    return Illegal(std::format("the weight's scale is neither per tensor nor per output column ({} values, axis {})",
                               scale->size(), axis));
  }
  if (dq.attrs.Int("block_size", 0) != 0) return Illegal("the weight is quantized in blocks");
  if (dq.input(2)) {
    const ir::Tensor* zero = g.ConstantOf(dq.input(2));
    if (zero == nullptr) return Illegal("the weight's zero point is not a constant");
    const std::vector<float> z = zero->ToFloats();
    if (std::any_of(z.begin(), z.end(), [](float v) { return v != 0; })) {
      return Illegal("the weight has a zero point other than 0: quantize weights symmetrically");
    }
  }
  if (m.Has(bias)) {
    const ir::Tensor* b = g.ConstantOf(m[bias]);
    if (b == nullptr || b->dtype() != DType::kF32 || b->size() != n || b->rank() != 1) {
      return Illegal(std::format("what is added is not a constant bias of {} values", n));
    }
  }
  return Ok();
}

bool IsScalar(const Graph& g, ValueId v) {
  const ir::Tensor* t = g.ConstantOf(v);
  return t != nullptr && t->size() == 1;
}

Verdict CheckPerTensor(const Graph& g, const Node& node, const char* what) {
  if (!IsScalar(g, node.input(1)) || !node.input(2) || !IsScalar(g, node.input(2))) {
    return Illegal(std::format("{} is not quantized per tensor with a constant scale and zero point", what));
  }
  return Ok();
}

// As CheckPerTensor, but the parameters may be computed at run time (DynamicQuantizeLinear): scalars by their type.
Verdict CheckActivation(const Graph& g, const Node& node) {
  const auto is_scalar = [&g](ValueId v) {
    const auto& shape = g.value(v).type.shape;
    return shape && shape->empty();
  };
  if (node.input(2) && is_scalar(node.input(1)) && is_scalar(node.input(2))) return Ok();
  return CheckPerTensor(g, node, "the activation");
}

// Operands: both integers or both fp8; what stands between is f32.
Verdict CheckTypes(const Match& m, Var x, Var w, Var product, Var q) {
  const Graph& g = m.graph();
  if (g.value(m[product]).type.dtype != DType::kF32)
    return NoKernel(std::format("the product is {}, for which there is no kernel: its scales must be f32",
                                quant::Name(g.value(m[product]).type.dtype)));
  if (quant::IsFp8(g.value(m[x]).type.dtype) != quant::IsFp8(g.value(m[w]).type.dtype))
    return Illegal("one operand is fp8, the other an integer");
  return !q.valid() ? Ok() : CheckOutputCodes(m, q);
}

struct Activations {
  Var gelu, relu, sigmoid, tanh, silu, quick_gelu, slope;
};

std::string ActivationName(const Match& m, const Activations& a) {
  if (m.Has(a.gelu)) return m.at(a.gelu).attrs.Str("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu";
  if (m.Has(a.relu)) return "relu";
  if (m.Has(a.silu)) return "silu";
  if (m.Has(a.quick_gelu)) return "quick_gelu";
  if (m.Has(a.sigmoid)) return "sigmoid";
  return m.Has(a.tanh) ? "tanh" : "none";
}

}  // namespace

Rule LinearInt8(bool quantized_output, bool activation, bool bias_required) {
  const char* name = activation         ? "linear_act_int8"
                     : quantized_output ? "linear_quant_int8"
                     : bias_required    ? "linear_bias_int8"
                                        : "linear_int8";
  RuleBuilder r(name, "MatMul(DQ x, DQ w) + bias [activation] [Q] -> LinearInt8");
  const Var x = r.Input("x", {.dtypes = {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}});
  const Var w = r.Constant("w", {.dtypes = {DType::kS8, DType::kE4M3FN, DType::kE5M2}});
  const Var xd = r.MayEscape(r.Open(r.Op("x_dequantized", Op::kDequantizeLinear, {x})));
  const Var wd = r.MayEscape(r.Open(r.Op("w_dequantized", Op::kDequantizeLinear, {w})));
  const Var product = r.Op("product", Op::kMatMul, {xd, wd});
  const Var bias = r.Input("bias");
  const Var biased = r.AnyOrder("biased", Op::kAdd, product, bias);
  const Var sum = bias_required ? biased : r.Optional(biased, product);
  Activations act;
  Var y = sum;
  if (activation) {
    act.slope = r.Scalar("slope", 1.702);
    act = {r.Open(r.Op("gelu", Op::kGelu, {sum})),
           r.Op("relu", Op::kRelu, {sum}),
           r.Op("sigmoid", Op::kSigmoid, {sum}),
           r.Op("tanh", Op::kTanh, {sum}),
           r.AnyOrder("silu", Op::kMul, sum, r.Op("gate", Op::kSigmoid, {sum})),
           r.AnyOrder("quick_gelu", Op::kMul, sum,
                      r.Op("quick_gate", Op::kSigmoid, {r.AnyOrder("steeper", Op::kMul, sum, act.slope)})),
           act.slope};
    y = r.OneOf("activation", {act.gelu, act.relu, act.silu, act.quick_gelu, act.sigmoid, act.tanh});
  }
  const Var post_scale = quantized_output ? r.Constant("post_scale", {.dtypes = {DType::kF32}}) : Var();
  if (quantized_output) y = r.Optional(r.AnyOrder("post_scaled", Op::kMul, y, post_scale), y);
  const Var q = quantized_output ? r.Open(r.Op("quantized", Op::kQuantizeLinear, {y})) : Var();
  r.Root(quantized_output ? q : y);
  r.Guard([=](const Match& m) {
    const Graph& g = m.graph();
    if (Verdict v = CheckWeights(m, w, wd, bias); !v.ok()) return v;
    if (Verdict v = CheckActivation(g, m.at(xd)); !v.ok()) return v;
    if (Verdict v = CheckTypes(m, x, w, product, q); !v.ok()) return v;
    if (activation && m.Has(act.quick_gelu) && m.scalar(act.slope) != 1.702f) {
      return Illegal(std::format("its gate has the slope {}, the kernel's is 1.702", m.scalar(act.slope)));
    }
    if (quantized_output) {
      if (Verdict v = CheckPerTensor(g, m.at(q), "the output"); !v.ok()) return v;
      if (m.Has(post_scale)) {
        const ir::Tensor& s = *g.ConstantOf(m[post_scale]);
        if (s.rank() != 1 || s.size() != g.ConstantOf(m[w])->shape()[1]) {
          return Illegal("what multiplies the output is not a vector of its columns");
        }
      }
    }
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node& dx = m.at(xd);
    const Node& dw = m.at(wd);
    std::vector<ValueId> in{m[x], dx.input(1), dx.input(2), m[w], dw.input(1), m.Has(bias) ? m[bias] : ValueId{}};
    if (quantized_output) {
      in.push_back(m.at(q).input(1));
      in.push_back(m.at(q).input(2));
      if (m.Has(post_scale)) in.push_back(m[post_scale]);
    }
    while (!in.back().valid()) in.pop_back();
    return b.Create(Op::kLinearInt8, std::move(in), {{"activation", activation ? ActivationName(m, act) : "none"}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
