// Before: p = Softmax(MatMul(DQ q, DQ kT) [* scale] [+ mask]);  [Where(keep, ., hidden) before it, NaN guard behind it];  o = MatMul(DQ(Q(p)), DQ v);  [o = Q(o)]
//         [DQ(Q(.)) behind the product, the scale (or a division), the mask or the Where, the guard]
//         relative: e = Exp(s - ReduceMax(s)) for p;  o = MatMul(DQ(Q(e), 1), DQ v) / Max(ReduceSum(DQ(Q(e), 1)), 1)
// After:  o = SdpaInt8(q, k, v, scales and zero points, mask, keep), rank 4 (sdpa_layout.cc absorbs head split and merge)
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

namespace {

// What codes of exponentials must be: whole numbers from 0 on, divided by their own sum.
Verdict CheckRelative(const Match& m, const SdpaMiddle& mid, Var pq, Var pd, Var sum) {
  const Graph& g = m.graph();
  if (!ReducesRows(g, m.at(mid.top))) return Illegal("the maximum of the scores is not that of each row");
  if (!ReducesRows(g, m.at(sum))) return Illegal("the sum of the codes is not that of each row");
  if (g.ConstantOf(m.at(pd).input(1))->GetDouble(0) != 1.0)
    return Illegal("codes of exponentials are not dequantized by 1");
  const ir::Tensor *zero = g.ConstantOf(m.at(pq).input(2)), *back = g.ConstantOf(m.at(pd).input(2));
  const int64_t lowest = zero != nullptr && zero->dtype() == DType::kS8 ? -128 : 0;
  const auto point = [](const ir::Tensor* t) { return t == nullptr ? int64_t{0} : t->GetInt(0); };
  if (point(zero) != lowest || point(back) != lowest)
    return Illegal("the zero point of exponentials is not the lowest code");
  return Ok();
}

}  // namespace

Rule SdpaInt8(bool quantized_output, bool relative) {
  RuleBuilder r(std::format("sdpa_int8{}{}", relative ? "_relative" : "", quantized_output ? "" : "_float_out"),
                "Q/DQ attention -> SdpaInt8");
  const Spec int8{.dtypes = {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}};
  const Var q = r.Input("q", int8);
  const Var kt = r.Input("kT", int8);
  const Var v = r.Input("v", int8);
  const Var qd = r.MayEscape(r.Open(r.Op("q_dequantized", Op::kDequantizeLinear, {q})));
  const Var kd = r.MayEscape(r.Open(r.Op("kT_dequantized", Op::kDequantizeLinear, {kt})));
  const Var vd = r.MayEscape(r.Open(r.Op("v_dequantized", Op::kDequantizeLinear, {v})));
  const SdpaMiddle mid = MatchScoresToProbabilities(r, qd, kd, true, relative);
  const Var pq = r.MayEscape(r.Open(r.Op("p_quantized", Op::kQuantizeLinear, {mid.p})));
  const Var pd = r.MayEscape(r.Open(r.Op("p_dequantized", Op::kDequantizeLinear, {pq})));
  const Var sums = relative ? r.Open(r.Op("sum_of_codes", Op::kReduceSum, {pd, r.Constant("sum_axis")})) : Var();
  const Var of_values = r.Op("output", Op::kMatMul, {pd, vd});
  const Var product = !relative ? of_values
                                : r.Op("output_divided", Op::kDiv,
                                       {of_values, r.AnyOrder("at_least_one", Op::kMax, sums, r.Scalar("one", 1.0))});
  const Var oq = quantized_output ? r.Open(r.Op("output_quantized", Op::kQuantizeLinear, {product})) : Var();
  r.Root(quantized_output ? oq : product);
  r.Guard([=](const Match& m) {
    for (const auto& [var, what] : {std::pair{qd, "q"}, {kd, "k"}, {vd, "v"}, {pq, "P"}, {pd, "P"}}) {
      if (Verdict bad = CheckScalarParams(m, var, what); !bad.ok()) return bad;
    }
    if (quantized_output) {
      if (Verdict bad = CheckScalarParams(m, oq, "the output"); !bad.ok()) return bad;
      if (!quant::IsCode8(m.graph().value(m[oq]).type.dtype)) return Illegal("the output is not quantized to 8 bits");
      if (Verdict bad = CheckSaturates(m, oq); !bad.ok()) return bad;
    }
    if (m.graph().value(m[of_values]).type.dtype != DType::kF32)
      return NoKernel("attention between its codes is not f32, for which there is no kernel");
    if (!quant::IsCode8(m.graph().value(m[pq]).type.dtype)) return Illegal("P is not quantized to 8 bits");
    if (Verdict bad = CheckSaturates(m, pq); !bad.ok()) return bad;
    const bool fp8 = quant::IsFp8(m.graph().value(m[q]).type.dtype);
    for (Var var : {kt, v, pq, quantized_output ? oq : pq}) {
      if (quant::IsFp8(m.graph().value(m[var]).type.dtype) != fp8)
        return Illegal("q, k, v, P and the output are partly fp8, partly integers");
    }
    if (relative) {
      if (fp8) return Illegal("codes of exponentials are fp8");
      if (Verdict bad = CheckRelative(m, mid, pq, pd, sums); !bad.ok()) return bad;
    } else if (!SameParams(m, pq, pd)) {
      return Illegal("P is quantized and dequantized with different parameters");
    }
    if (Verdict bad = CheckScoreCodes(m, mid, fp8); !bad.ok()) return bad;
    return CheckHeads(m, q, kt, v, mid);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const auto param = [&m](Var node, size_t slot) { return m.at(node).input(slot); };
    ir::Attrs attrs = SdpaAttrs(m, q, kt, v, mid);
    if (relative) attrs.Set("p_relative", int64_t{1});
    const size_t rank = m.graph().value(m[q]).type.shape->size();
    std::vector<ValueId> in{Lifted(b, m[q], rank), {}, Lifted(b, m[v], rank)};
    for (Var node : {qd, kd, vd, pq}) {
      in.push_back(param(node, 1));
      in.push_back(param(node, 2));
    }
    in.push_back(quantized_output ? param(oq, 1) : ValueId{});
    in.push_back(quantized_output ? param(oq, 2) : ValueId{});
    AddMasks(b, m, mid, rank, &in);
    AddScoreCodes(m, mid, &attrs, &in);
    in[1] = Untransposed(b, Lifted(b, m[kt], rank));
    return Lowered(b, b.Create(Op::kSdpaInt8, std::move(in), attrs), rank);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
