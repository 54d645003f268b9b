// Before: y = MatMul(DequantizeLinear(x), DequantizeLinear(w)) [+ bias] [activation] [QuantizeLinear]
// After:  y = QuantizedLinear(x, w, bias, y_scale, y_zp), activation as attribute
// Shapes: x u8/s8 [..,K], per tensor, its parameters constant or computed (dynamic)   w s8 [K,N] constant, symmetric, per tensor or per column   bias f32 [N] constant
//         or x and w both fp8 (E4M3FN or E5M2), then the output may be fp8 too
// Exact: the body of QuantizedLinear is what stood there (ir/functions.h).
// Refuses: weights with a zero point, blocked scales, bias that is not a constant vector of the columns.
#include "octavo/passes/fusions/activations.h"
#include "octavo/passes/fusions/linear_operands.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

Rule QuantizedLinear(bool quantized_output, bool activation, bool bias_required) {
  const char* name = activation         ? "quantized_linear_act"
                     : quantized_output ? "quantized_linear_out"
                     : bias_required    ? "quantized_linear_bias"
                                        : "quantized_linear";
  RuleBuilder r(name, "MatMul(DQ x, DQ w) + bias [activation] [Q] -> QuantizedLinear");
  LinearParts p;
  p.x = r.Input("x", {.dtypes = {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}});
  p.w = r.Constant("w", {.dtypes = {DType::kS8, DType::kE4M3FN, DType::kE5M2}});
  p.xd = r.MayEscape(r.Open(r.Op("x_dequantized", Op::kDequantizeLinear, {p.x})));
  p.wd = r.MayEscape(r.Open(r.Op("w_dequantized", Op::kDequantizeLinear, {p.w})));
  p.product = r.Op("product", Op::kMatMul, {p.xd, p.wd});
  p.bias = r.Input("bias");
  const Var biased = r.AnyOrder("biased", Op::kAdd, p.product, p.bias);
  Var y = bias_required ? biased : r.Optional(biased, p.product);
  const Activations act = activation ? MatchActivation(r, y) : Activations();
  if (activation) y = act.any;
  if (quantized_output) {
    p.post_scale = r.Constant("post_scale", {.dtypes = {DType::kF32}});
    y = r.Optional(r.AnyOrder("post_scaled", Op::kMul, y, p.post_scale), y);
    y = p.quantized = r.Open(r.Op("quantized", Op::kQuantizeLinear, {y}));
  }
  r.Root(y);
  r.Guard([=](const Match& m) {
    const Verdict of_product = CheckLinear(m, p);
    return of_product.ok() && activation ? CheckSlope(m, act) : of_product;
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node &dx = m.at(p.xd), &dw = m.at(p.wd);
    std::vector<ValueId> in{m[p.x], dx.input(1), dx.input(2),
                            m[p.w], dw.input(1), m.Has(p.bias) ? m[p.bias] : ValueId{}};
    if (quantized_output) {
      in.push_back(m.at(p.quantized).input(1));
      in.push_back(m.at(p.quantized).input(2));
      if (m.Has(p.post_scale)) in.push_back(m[p.post_scale]);
    }
    while (!in.back().valid()) in.pop_back();
    return b.Create(Op::kQuantizedLinear, std::move(in), {{"activation", activation ? ActivationName(m, act) : "none"}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
