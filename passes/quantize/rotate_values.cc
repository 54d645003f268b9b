// rotate_values: values of attention are turned, and turned back by the product behind it, so that no channel is much larger than the others and one scale
// suits all.
// Before: y = MatMul(Sdpa(q, k, MatMul(x, Wv) [+ b]), Wo)
// After:  y = MatMul(Sdpa(q, k, MatMul(x, Wv R) [+ b R]), R' Wo)     R: for each head the same orthogonal matrix, signs and Hadamard's
// Attention adds up values, so it turns with them: P (V R) R' = P V. The float meaning changes by rounding alone, weights by 2^-24 of their size, and no node
// is added. R2 of QuaRot and SpinQuant (Ashkboos et al., arXiv 2404.00456). Figures: docs/lab/quantization.md.
// Left: values of a cache, of a packed projection or that something else reads; heads whose size has no factor of 8; attention whose result is read by more
// than products.
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/turn.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

// So many channels are turned together: the largest power of 2 that the head is a multiple of.
int64_t SizeOf(int64_t head) { return head > 0 ? head & -head : 0; }

struct Site {
  struct Operand {
    NodeId node;
    size_t slot;
  };
  std::vector<Operand> columns;  // constants whose last axis is the channels of V: weight and bias
  std::vector<Operand> rows;     // weights of the products that read the result
};

// A constant of floats and the length of its first or last axis.
bool IsMatrix(const Graph& g, ValueId v, size_t axis, int64_t length, int64_t rank = 2) {
  const Tensor* t = g.ConstantOf(v);
  return t != nullptr && t->dtype() == ir::DType::kF32 && t->rank() == rank && t->shape()[axis] == length;
}

std::optional<Site> SiteOf(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const int64_t head = n.attrs.Int("v_head_dim", 0);
  const int64_t in = n.attrs.Int("kv_num_heads", 0) * head, out = n.attrs.Int("num_heads", 0) * head;
  if (n.attrs.Int("v_rank", 4) != 3 || n.attrs.Int("out_rank", 4) != 3 || SizeOf(head) < 8) return {};
  Site site;
  ValueId v = n.input(2);
  if (const Node* add = g.Producer(v); add != nullptr && add->op == Op::kAdd && g.HasOneUse(v)) {
    const size_t slot = g.ConstantOf(add->input(0)) != nullptr ? 0 : 1;
    if (!IsMatrix(g, add->input(slot), 0, in, 1)) return {};
    site.columns.push_back({g.value(v).producer, slot});
    v = add->input(1 - slot);
  }
  if (!g.IsFrom(v, Op::kMatMul) || !g.HasOneUse(v) || !IsMatrix(g, g.Producer(v)->input(1), 1, in)) return {};
  site.columns.push_back({g.value(v).producer, 1});
  if (g.IsGraphOutput(n.output())) return {};
  for (const ir::Use& use : g.value(n.output()).uses) {
    const Node& reader = g.node(use.node);
    if (reader.op != Op::kMatMul || use.slot != 0 || !IsMatrix(g, reader.input(1), 0, out)) return {};
    site.rows.push_back({use.node, 1});
  }
  return site.rows.empty() ? std::nullopt : std::optional(site);
}

}  // namespace

Result<bool> RotateValues(Graph& graph, PassRun& run) {
  Rewriter b(graph, "rotate_values");
  for (NodeId id : FindSites(graph, run.keep_float).attentions) {
    const auto site = SiteOf(graph, id);
    if (!site) continue;
    const int64_t size = SizeOf(graph.node(id).attrs.Int("v_head_dim", 0));
    const auto turn = [&](const Site::Operand& o, bool columns) {
      const ValueId old = graph.node(o.node).input(o.slot);
      const Tensor& t = *graph.ConstantOf(old);
      b.At(o.node, {o.node});
      Tensor turned = Turned(t, size, columns ? 1 : t.shape()[1], {}, TurnPowerOf2, run.parallel);
      b.SetInput(o.node, o.slot, b.Constant(std::move(turned), graph.value(old).name + "_turned"));
    };
    for (const Site::Operand& o : site->columns) turn(o, true);
    for (const Site::Operand& o : site->rows) turn(o, false);
    run.log.push_back("rotate_values: " + OriginName(graph.node(id)));
  }
  return b.changed();
}

}  // namespace octavo::passes::quantize
