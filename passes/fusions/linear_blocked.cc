// Before: y = MatMul(x, [Transpose] DequantizeLinear(w, scale, zero_point; block_size)) [+ bias]
// After:  y = LinearBlocked(x, w, scale, zero_point, bias)
// Shapes: x f32 [..,K]   w u2/s2/u4/s4/e2m1/u8/s8 [K,N], blocked along K, or [N,K] and transposed   bias f32 [N] constant
// The op's body is what stood there, on codes that kernels have (wide_codes.h). The kernel scales sums of blocks instead of
// weights: within (K + 3) 2^-23 of the sum of |x w| of the float product.
// Refuses: scales per tensor or per column, blocks that no kernel takes, parameters that are no constants.
#include <format>

#include "octavo/kernels/catalog.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/fusions/wide_codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

Verdict CheckBlocks(const Graph& g, const Node& dq, bool transposed) {
  const ir::Tensor& w = *g.ConstantOf(dq.input(0));
  if (w.rank() != 2) return Shape(std::format("the weight has rank {}, not 2", w.rank()));
  const int64_t block = dq.attrs.Int("block_size", 0);
  if (block == 0) return Illegal("the weight is not quantized in blocks");
  const int64_t axis = dq.attrs.Int("axis", 1) + (dq.attrs.Int("axis", 1) < 0 ? 2 : 0);
  if (axis != (transposed ? 1 : 0)) return Illegal("the blocks of the weight lie along its columns, not along k");
  const kernels::Choice choice =
      kernels::ChooseBlocked({.w = WideTypeOf(w.dtype()), .block = block}, kernels::Arch::kScalar);
  if (!choice.ok()) return NoKernel(choice.refusal);
  const ir::Tensor* scale = g.ConstantOf(dq.input(1));
  if (scale == nullptr || scale->dtype() != DType::kF32) return Illegal("the weight's scale is not a constant of f32");
  if (dq.input(2) && g.ConstantOf(dq.input(2)) == nullptr) return Illegal("the weight's zero point is not a constant");
  return Ok();
}

}  // namespace

Rule LinearBlocked(bool bias_required) {
  RuleBuilder r(bias_required ? "linear_bias_blocked" : "linear_blocked",
                "MatMul(x, blocked DQ w) [+ bias] -> LinearBlocked");
  const Var x = r.Input("x", {.dtypes = {DType::kF32}});
  const Var w = r.Constant("w", {.dtypes = CodesOfBlocks()});
  const Var wd = r.MayEscape(r.Open(r.Op("w_dequantized", Op::kDequantizeLinear, {w})));
  const Var turned = r.MayEscape(r.Op("w_transposed", Op::kTranspose, {wd}, PermIs({1, 0})));
  const Var product = r.Op("product", Op::kMatMul, {x, r.Optional(turned, wd)});
  const Var bias = bias_required ? r.Input("bias") : Var();
  r.Root(bias_required ? r.AnyOrder("biased", Op::kAdd, product, bias) : product);
  r.Guard([=](const Match& m) {
    if (Verdict v = CheckBlocks(m.graph(), m.at(wd), m.Has(turned)); !v.ok()) return v;
    if (!bias_required) return Ok();
    const ir::Tensor* b = m.graph().ConstantOf(m[bias]);
    const int64_t n = m.graph().ConstantOf(m[w])->shape()[m.Has(turned) ? 0 : 1];
    if (b == nullptr || b->dtype() != DType::kF32 || b->rank() != 1 || b->size() != n) {
      return Illegal(std::format("what is added is not a constant bias of {} values", n));
    }
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node dq = m.at(wd);
    std::vector<ValueId> in{m[x], m[w], dq.input(1), dq.input(2), bias_required ? m[bias] : ValueId{}};
    Widen(b, in);
    while (!in.back().valid()) in.pop_back();
    return b.Create(Op::kLinearBlocked, std::move(in),
                    {{"block_size", dq.attrs.Int("block_size", 0)}, {"transposed", int64_t{m.Has(turned) ? 1 : 0}}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
