// Before: y, s = SkipLayerNorm(x, skip, gamma, beta) or a plain norm;  _, q = NormQuant(x, skip, gamma', beta', ..)
// After:  y, q, s = NormQuant(x, skip, gamma, beta, .., gamma', beta'); what nobody reads is left out
// Exact: the same operations; sum, mean and deviation of the row are computed once. Smoothing makes such twins
// (passes/quantize/smooth.cc): what the residual reads has its own gamma.
// Refuses: another epsilon, a norm whose mean is used.
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

bool IsWanted(const Graph& g, ValueId v) { return v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v)); }

Verdict Check(const Graph& g, const Node& q, const Node& twin) {
  if (q.output(0) || q.output(2) || q.input(6)) return Shape("the codes have a twin already");
  const bool rms = q.attrs.Int("rms", 0) != 0, skips = twin.op == Op::kSkipLayerNorm;
  if (rms != (skips ? twin.attrs.Int("rms", 0) != 0 : twin.op == Op::kRMSNormalization))
    return Illegal("one of the norms takes the mean away, the other does not");
  if (twin.attrs.Float("epsilon", 1e-5f) != q.attrs.Float("epsilon", 1e-5f))
    return Illegal("the two norms have different epsilons");
  for (size_t i = 1; i < twin.outputs.size() && !skips; ++i) {
    if (IsWanted(g, twin.outputs[i])) return NotWorth("the mean or deviation of the twin is used");
  }
  return Ok();
}

}  // namespace

Rule TwinNorm(Op op) {
  const bool skips = op == Op::kSkipLayerNorm;
  RuleBuilder r("twin_norm", "a norm beside one whose codes are wanted -> one NormQuant");
  const Var x = r.Input("x"), skip = skips ? r.Input("skip") : Absent();
  const Var codes = r.Open(r.Output(r.Op("codes", Op::kNormQuant, {x, skip}), 1));
  const Var twin = r.Open(r.Op("twin", op, skips ? std::vector<Var>{x, skip} : std::vector<Var>{x}));
  r.Root(codes);
  r.Beside(skips ? twin : r.Named(twin, {{"axis", int64_t{-1}}}));
  r.Guard([=](const Match& m) { return Check(m.graph(), m.at(codes), m.at(twin)); });
  r.Build([=](Rewriter& b, const Match& m) {
    const NodeId id = m.node(codes), twin_id = m.node(twin);
    const Graph& g = m.graph();
    const Node& q = g.node(id);
    const Node other = g.node(twin_id);
    b.At(g.Before(id, twin_id) ? id : twin_id, {id, twin_id});
    const size_t gamma = skips ? 2 : 1;
    const bool keeps_y = IsWanted(g, other.output()), keeps_sum = skips && IsWanted(g, other.output(1));
    std::vector<ValueId> inputs = q.inputs;
    inputs.resize(6);
    if (keeps_y) {
      inputs.push_back(q.input(2));
      if (q.input(3)) inputs.push_back(q.input(3));
      inputs[2] = other.input(gamma);
      inputs[3] = q.attrs.Int("rms", 0) != 0 ? ValueId{} : other.input(gamma + 1);
    }
    const NodeId made = b.CreateN(Op::kNormQuant, std::move(inputs), keeps_sum ? 3 : 2, q.attrs);
    const std::vector<ValueId> outputs = g.node(made).outputs;
    if (keeps_y) b.Replace(other.output(), outputs[0]);
    if (!keeps_y) b.graph().DropOutput(made, 0);
    if (keeps_sum) b.Replace(other.output(1), outputs[2]);
    b.EraseDead(twin_id);
    return outputs[1];
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
