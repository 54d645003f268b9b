// Before: p = Softmax(MatMul(DQ q, DQ kT) [* scale] [+ mask]);  [Where(keep, ., hidden) before it, NaN guard behind it];  o = MatMul(DQ(Q(p)), DQ v);  [o = Q(o)]
//         [DQ(Q(.)) behind the product, the scale (or a division), the mask or the Where, the guard]
//         relative: e = Exp(s - ReduceMax(s)) for p;  o = MatMul(DQ(Q(e), 1), DQ v) / Max(ReduceSum(DQ(Q(e), 1)), 1)
// After:  o = QuantizedSdpa(q, k, v, scales and zero points, mask, keep), rank 4 (sdpa_split.cc and sdpa_merge.cc absorb what is done to heads)
// Exact: integer products, float32 in the graph's order, P quantized where the graph says (exact mode).
// fp8: sums of exact products in order (kernels/fp8/fp8.h); q, k, v, P and o are all integers or all fp8.
// Refuses: what sdpa refuses, operands that are not 8 bits per tensor.
#include <format>

#include "octavo/passes/fusions/codes.h"
#include "octavo/passes/fusions/sdpa_codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

Rule QuantizedSdpa(bool quantized_output, bool relative) {
  RuleBuilder r(std::format("quantized_sdpa{}{}", relative ? "_relative" : "", quantized_output ? "" : "_float_out"),
                "Q/DQ attention -> QuantizedSdpa");
  const Spec int8{.dtypes = {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}};
  const auto dequantized = [&](const char* name, Var codes) {
    return r.MayEscape(r.Open(r.Op(name, Op::kDequantizeLinear, {codes})));
  };
  SdpaOperands o;
  o.q = r.Input("q", int8), o.kt = r.Input("kT", int8), o.v = r.Input("v", int8);
  o.qd = dequantized("q_dequantized", o.q);
  o.kd = dequantized("kT_dequantized", o.kt);
  o.vd = dequantized("v_dequantized", o.v);
  const SdpaMiddle mid = MatchScoresToProbabilities(r, o.qd, o.kd, true, relative);
  o.pq = r.MayEscape(r.Open(r.Op("p_quantized", Op::kQuantizeLinear, {mid.p})));
  o.pd = dequantized("p_dequantized", o.pq);
  if (relative) o.sums = r.Open(r.Op("sum_of_codes", Op::kReduceSum, {o.pd, r.Constant("sum_axis")}));
  Var y = o.values = r.Op("output", Op::kMatMul, {o.pd, o.vd});
  if (relative)
    y = r.Op("output_divided", Op::kDiv, {y, r.AnyOrder("at_least_one", Op::kMax, o.sums, r.Scalar("one", 1.0))});
  if (quantized_output) y = o.quantized = r.Open(r.Op("output_quantized", Op::kQuantizeLinear, {y}));
  r.Root(y);
  r.Guard([=](const Match& m) {
    if (Verdict bad = CheckOperandCodes(m, o); !bad.ok()) return bad;
    if (Verdict bad = CheckProbabilities(m, mid, o); !bad.ok()) return bad;
    if (Verdict bad = CheckScoreCodes(m, mid, quant::IsFp8(m.dtype(o.q))); !bad.ok()) return bad;
    return CheckHeads(m, o.q, o.kt, o.v, mid);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    ir::Attrs attrs = SdpaAttrs(m, o.q, o.kt, o.v, mid);
    relative ? attrs.Set("p_relative", int64_t{1}) : SetStep(m, o.pq, o.pd, "p_step", &attrs);
    const size_t rank = m.shape(o.q)->size();
    std::vector<ValueId> in{Lifted(b, m[o.q], rank), {}, Lifted(b, m[o.v], rank)};
    for (Var node : {o.qd, o.kd, o.vd, o.pq, o.quantized}) {
      for (size_t slot : {1u, 2u}) in.push_back(node.valid() ? m.at(node).input(slot) : ValueId{});
    }
    AddMasks(b, m, mid, rank, &in);
    AddScoreCodes(m, mid, &attrs, &in);
    in[1] = Untransposed(b, Lifted(b, m[o.kt], rank));
    return Lowered(b, b.Create(Op::kQuantizedSdpa, std::move(in), attrs), rank);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
