// Before: s = x + skip;  y = LayerNormalization(s, gamma, beta) or RMSNormalization(s, gamma), axis -1
// After:  y, s = SkipLayerNorm(x, skip, gamma, beta), attribute rms for the second
// Exact: the same two operations. x and skip must have the same shape (broadcasting stays outside).
#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

Rule SkipLayerNorm(Op op) {
  const bool rms = op == Op::kRMSNormalization;
  RuleBuilder r(rms ? "skip_rms_norm" : "skip_layer_norm", "norm of x + skip -> SkipLayerNorm");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var skip = r.Input("skip", {.dtypes = {ir::DType::kF32}});
  const Var sum = r.MayEscape(r.Op("sum", Op::kAdd, {x, skip}));
  const Var gamma = r.Input("gamma");
  const Var norm = r.Open(r.Op("norm", op, {sum, gamma}, LastAxis(-1)));
  r.Root(norm);
  r.Guard([=](const Match& m) {
    const Graph& g = m.graph();
    if (!SameShape(g, m[x], m[skip])) return Illegal("x and skip are not known to have the same shape");
    if (g.ConstantOf(m[x]) != nullptr || g.ConstantOf(m[skip]) != nullptr) return NotWorth("one operand is a constant");
    for (size_t i = 1; i < m.at(norm).outputs.size(); ++i) {
      const ValueId v = m.at(norm).outputs[i];
      if (v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v)))
        return Illegal("the mean or deviation output is used");
    }
    return CheckVectors(g, m[x], {m[gamma], rms ? ValueId{} : m.at(norm).input(2)}, false);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node norm_node = m.at(norm);
    const ValueId old_sum = m[sum];
    const bool keep = !b.graph().HasOneUse(old_sum);
    std::vector<ValueId> inputs{m[x], m[skip], m[gamma]};
    if (!rms && norm_node.input(2)) inputs.push_back(norm_node.input(2));
    ir::Attrs attrs{{"epsilon", norm_node.attrs.Float("epsilon", 1e-5f)}};
    if (rms) attrs.Set("rms", int64_t{1});
    const NodeId made = b.CreateN(Op::kSkipLayerNorm, std::move(inputs), keep ? 2 : 1, std::move(attrs));
    const ValueId y = b.graph().node(made).output();
    if (keep) {
      b.Replace(old_sum, b.graph().node(made).output(1));
    }
    return y;
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
