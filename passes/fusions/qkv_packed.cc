// Before: q, k, v = Split(QuantizedLinear(x, w [K,N], ..))  [QuantizeLinear each]      packed projections: GPT-2, timm's ViT
// After:  q, k, v = QuantizedQkv(x, [columns of w ..], [..], [..])                     each part in its own codes, nothing copied
// Exact: the columns of a product do not know each other.
// Refuses: activations, scales behind them and residuals, which QuantizedQkv lacks; parts whose widths are no numbers.
#include "octavo/passes/fusions/packed_parts.h"
#include "octavo/passes/fusions/projections.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

void Rewrite(Rewriter& b, NodeId id, NodeId product, const std::vector<int64_t>& widths) {
  const Graph& g = b.graph();
  const Node split = g.node(id), linear = g.node(product);
  const bool fp8 = quant::IsFp8(g.value(linear.input(0)).type.dtype);
  std::vector<ValueId> inputs{linear.input(0), linear.input(1), linear.input(2)}, replaced;
  b.At(id, {product, id});
  int64_t first = 0;
  for (size_t i = 0; i < widths.size(); first += widths[i++]) {
    for (size_t slot : {3u, 4u, 5u}) inputs.push_back(Columns(b, linear.input(slot), first, widths[i]));
    const Node* q = linear.input(6) ? nullptr : QuantizeBehind(g, split.outputs[i], fp8);
    inputs.push_back(q != nullptr ? q->input(1) : linear.input(6));
    inputs.push_back(q != nullptr ? q->input(2) : linear.input(7));
    replaced.push_back(q != nullptr ? q->output() : split.outputs[i]);
  }
  while (!inputs.back().valid()) inputs.pop_back();
  ir::Attrs attrs;
  if (linear.attrs.Int("per_token", 0) != 0) attrs.Set("per_token", int64_t{1});
  const NodeId made = b.CreateN(Op::kQuantizedQkv, std::move(inputs), widths.size(), std::move(attrs));
  for (size_t i = 0; i < widths.size(); ++i) {
    b.Replace(replaced[i], g.node(made).output(i));
    const NodeId quantize = g.value(replaced[i]).producer;
    if (quantize != id) b.EraseDead(quantize);
  }
  if (g.IsAlive(id)) b.EraseDead(id);
}

}  // namespace

Rule QkvPacked() {
  RuleBuilder r("quantized_qkv", "Split of a QuantizedLinear along its columns -> QuantizedQkv");
  const Var w = r.Constant("w", {.shape = {{"K", "N"}}}), scale = r.Constant("w_scale");
  const Var any = Anything();
  const Var linear =
      r.Open(r.Op("linear", Op::kQuantizedLinear, {any, any, any, w, scale, any, any, any, Absent(), Absent()}));
  const Var split = r.Open(r.Op("split", Op::kSplit, {linear}));
  r.Root(split);
  r.Guard([=](const Match& m) {
    if (WidthsOf(m.graph(), m.at(split)).empty()) return Illegal("it is no split into 2 to 8 parts of known widths");
    const Node& n = m.at(linear);
    if (n.input(5) && m.graph().ConstantOf(n.input(5)) == nullptr)
      return Illegal("the bias of the Linear is no constant");
    return n.attrs.Str("activation", "none") == "none" ? Ok()
                                                       : Illegal("the Linear has an activation, its parts cannot");
  });
  r.Build([=](Rewriter& b, const Match& m) {
    Rewrite(b, m.node(split), m.node(linear), WidthsOf(m.graph(), m.at(split)));
    return ValueId();
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
