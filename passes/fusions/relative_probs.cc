// Before: p = Softmax(s);  [p = Where(IsNaN(p), 0, p)];  o = MatMul(DQ(Q(p)), v)                 codes of 1/255
// After:  e = Exp(s - ReduceMax(s));  c = DequantizeLinear(Q(e), 1);  o = MatMul(c, v) / Max(ReduceSum(c), 1)
// The quantizer's codes of probabilities become codes of exponentials, relative to the largest of a row.
// A row that looks at n keys alike has probabilities of 1/n, which codes of 1/255 round to 0 beyond 510 keys, and a bit less for
// each doubling of n before; the largest exponential of a row is always 1. Whole numbers all, so the sum is exact. A row without
// meaning (NaN) has codes of 0 and gives 0, with the guard or without, as codes of NaN do.
// With reduced range (7 bits, for CPUs without VNNI) the codes are those of 1/128: two of them meet in vpmaddubsw.
// Left, with a line in the log: P with other scales (a file's own), P that is no operand of one product.
#include "octavo/passes/fusions/probability_codes.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::fusions {

namespace {

using ir::Tensor;

// `reduced`: codes of 7 bits.
void Rewrite(Rewriter& b, NodeId softmax, NodeId quantize, NodeId product, bool reduced) {
  Graph& g = b.graph();
  const Node q = g.node(quantize), dq = g.node(g.value(q.output()).uses[0].node);
  const ValueId s = g.node(softmax).input(0), o = g.node(product).output();
  b.At(quantize, {softmax});
  const ir::Attrs keep = {{"keepdims", int64_t{1}}};
  const ValueId last = b.Constant(Tensor::S64({1}, {-1})), one = b.Constant(Tensor::ScalarF32(1.0f));
  const ValueId e = b.Create(Op::kExp, {b.Create(Op::kSub, {s, b.Create(Op::kReduceMax, {s, last}, keep)})});
  b.SetInput(quantize, 0, e);
  if (reduced) b.SetInput(quantize, 1, b.Constant(Tensor::ScalarF32(1 / 128.0f)));
  b.SetInput(g.value(dq.output()).producer, 1, one);
  b.At(product, {softmax});
  const ValueId sum = b.Create(Op::kMax, {b.Create(Op::kReduceSum, {dq.output(), last}, keep), one});
  const ValueId copy = b.Create(Op::kMatMul, {dq.output(), g.node(product).input(1)});
  b.Replace(o, b.Create(Op::kDiv, {copy, sum}));
  b.EraseDead(product);
  if (g.IsAlive(softmax) && g.value(g.node(softmax).output()).uses.empty()) b.EraseDead(softmax);
}

}  // namespace

Result<bool> RelativeProbs(Graph& graph, PassRun& run) {
  Rewriter b(graph, "relative_probs");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id) || graph.node(id).op != Op::kQuantizeLinear) continue;
    const Node& q = graph.node(id);
    const NodeId softmax = SoftmaxOf(graph, q.input(0));
    if (!softmax.valid() || quant::IsFp8(graph.value(q.output()).type.dtype)) continue;
    const NodeId product = ProductOf(graph, q);
    if (product.valid() && HasPlainCodes(graph, q)) {
      Rewrite(b, softmax, id, product, run.weight_limit < 127);
      continue;
    }
    run.Leave("relative_probs", graph.node(softmax),
              product.valid() ? "keeps codes of probabilities: they are not those of 1/255"
                              : "keeps codes of probabilities: they are no operand of one product");
  }
  if (b.changed() && !graph.SortTopologically()) return ir::Fail("relative_probs made a cycle");
  return b.changed();
}

}  // namespace octavo::passes::fusions
