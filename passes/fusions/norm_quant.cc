// Before: y = LayerNormalization(x), RMSNormalization(x) or y, s = SkipLayerNorm(x, skip);  q = QuantizeLinear(y)
// After:  y, q, s = NormQuant(x, skip, gamma, beta, scale, zero point); y and s only where somebody reads them
// Exact: the same operations, one pass over the row instead of two.
// q: u8, s8, E4M3FN or E5M2.
// Refuses: quantization per channel or without saturation, a norm whose mean or deviation is used.
#include "octavo/passes/fusions/codes.h"
#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule NormQuant(Op op) {
  const bool skip = op == Op::kSkipLayerNorm;
  RuleBuilder r(skip                          ? "skip_norm_quant"
                : op == Op::kRMSNormalization ? "rms_norm_quant"
                                              : "norm_quant",
                "norm, then QuantizeLinear -> NormQuant");
  const Var norm = r.MayEscape(r.Open(r.Op("norm", op, {Anything(), Anything()}, LastAxis(-1))));
  const Var q = r.Open(r.Op("quantized", Op::kQuantizeLinear, {norm}));
  r.Root(q);
  r.Guard([=](const Match& m) {
    const Graph& g = m.graph();
    if (g.value(m[norm]).type.dtype != ir::DType::kF32) return NoKernel("the norm is not f32");
    for (size_t slot : {1u, 2u}) {
      const ir::Tensor* t = g.ConstantOf(m.at(q).input(slot));
      if (t == nullptr || t->size() != 1) return Illegal("the quantization is not per tensor with constant parameters");
    }
    if (!quant::IsCode8(g.value(m[q]).type.dtype)) return Illegal("the output is not quantized to 8 bits");
    if (Verdict v = CheckSaturates(m, q); !v.ok()) return v;
    for (size_t i = skip ? 2 : 1; i < m.at(norm).outputs.size(); ++i) {
      const ValueId v = m.at(norm).outputs[i];
      if (v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v))) {
        return NotWorth("the mean or deviation of the norm is used");
      }
    }
    const Node& n = m.at(norm);
    const size_t gamma = skip ? 2 : 1;
    return CheckVectors(g, n.input(0), {n.input(gamma), n.input(gamma + 1)}, false);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node n = m.at(norm);
    const Node quantize = m.at(q);
    const size_t gamma = skip ? 2 : 1;
    const bool rms = op == Op::kRMSNormalization || n.attrs.Int("rms", 0) != 0;
    const ValueId sum = skip ? n.output(1) : ValueId{};
    const bool keeps_sum = sum.valid() && (!b.graph().value(sum).uses.empty() || b.graph().IsGraphOutput(sum));
    ir::Attrs attrs{{"epsilon", n.attrs.Float("epsilon", 1e-5f)}};
    if (rms) attrs.Set("rms", int64_t{1});
    const NodeId made = b.CreateN(Op::kNormQuant,
                                  {n.input(0), skip ? n.input(1) : ValueId{}, n.input(gamma),
                                   rms ? ValueId{} : n.input(gamma + 1), quantize.input(1), quantize.input(2)},
                                  keeps_sum ? 3 : 2, std::move(attrs));
    const ValueId y = b.graph().node(made).output(0);
    if (b.graph().HasOneUse(m[norm])) {
      b.graph().DropOutput(made, 0);
    } else {
      b.Replace(m[norm], y);
    }
    if (keeps_sum) b.Replace(sum, b.graph().node(made).output(2));
    return b.graph().node(made).output(1);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
