// Before: q, k, v = Split(LinearInt8(x, w [K,N], ..))  [QuantizeLinear each]      packed projections: GPT-2, timm's ViT
// After:  q, k, v = QkvInt8(x, [columns of w ..], [..], [..])                     each part in its own codes, nothing copied
// Exact: the columns of a product do not know each other.
// Refuses: activations, scales behind them and residuals, which QkvInt8 lacks; parts whose widths are no numbers.
#include <cstring>

#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

namespace {

using ir::DType;
using ir::Tensor;

// Empty: not a Split of the last axis into 2 to 8 parts of known widths.
std::vector<int64_t> WidthsOf(const Graph& g, const Node& split) {
  if (split.op != Op::kSplit || split.outputs.size() < 2 || split.outputs.size() > 8) return {};
  const auto& shape = g.value(split.input(0)).type.shape;
  std::vector<int64_t> widths;
  if (!shape) return {};
  const auto rank = static_cast<int64_t>(shape->size());
  const int64_t axis = split.attrs.Int("axis", 0);
  if (axis != -1 && axis != rank - 1) return {};
  for (ValueId v : split.outputs) {
    if (!v.valid()) return {};
    const auto& part = g.value(v).type.shape;
    if (!part || part->empty() || !part->back().is_number() || part->back().number() < 1) return {};
    widths.push_back(part->back().number());
  }
  return widths;
}

bool IsPlainLinear(const Graph& g, const Node& n) {
  const Tensor* w = n.op == Op::kLinearInt8 ? g.ConstantOf(n.input(3)) : nullptr;
  return w != nullptr && w->rank() == 2 && g.ConstantOf(n.input(4)) != nullptr && g.HasOneUse(n.output()) &&
         (!n.input(5) || g.ConstantOf(n.input(5)) != nullptr) && !n.input(8) && !n.input(9) &&
         n.attrs.Str("activation", "none") == "none";
}

// The only reader of v, if it quantizes it as the epilogue of a product can.
const Node* QuantizeBehind(const Graph& g, ValueId v, bool fp8) {
  if (!g.HasOneUse(v)) return nullptr;
  const Node& q = g.node(g.value(v).uses.front().node);
  if (q.op != Op::kQuantizeLinear || q.input(0) != v || q.attrs.Int("saturate", 1) == 0) return nullptr;
  if (!HasScalarParams(g, q)) return nullptr;
  const DType codes = g.value(q.output()).type.dtype;
  return quant::IsCode8(codes) && (!fp8 || quant::IsFp8(codes)) ? &q : nullptr;
}

// Columns [first, first + count) of [K,N] or [N]; one number is that of every column.
ValueId Columns(Rewriter& b, ValueId v, int64_t first, int64_t count) {
  const Tensor* all = v.valid() ? b.graph().ConstantOf(v) : nullptr;
  if (all == nullptr || all->size() == 1) return v;
  const int64_t columns = all->shape().back(), rows = all->size() / columns;
  const size_t element = quant::BytesOf(all->dtype(), 1);
  ir::Shape shape = all->shape();
  shape.back() = count;
  Tensor part = Tensor::Empty(all->dtype(), shape);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(part.mutable_data() + static_cast<size_t>(r * count) * element,
                all->data() + static_cast<size_t>(r * columns + first) * element, static_cast<size_t>(count) * element);
  }
  return b.Constant(std::move(part));
}

void Rewrite(Rewriter& b, NodeId id, const std::vector<int64_t>& widths) {
  const Graph& g = b.graph();
  const NodeId product = g.value(g.node(id).input(0)).producer;
  const Node split = g.node(id), linear = g.node(product);
  const bool fp8 = quant::IsFp8(g.value(linear.input(0)).type.dtype);
  std::vector<ValueId> inputs{linear.input(0), linear.input(1), linear.input(2)}, replaced;
  std::vector<NodeId> sources{product, id};
  b.At(id, sources);
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
  const NodeId made = b.CreateN(Op::kQkvInt8, std::move(inputs), widths.size(), std::move(attrs));
  for (size_t i = 0; i < widths.size(); ++i) {
    b.Replace(replaced[i], g.node(made).output(i));
    const NodeId quantize = g.value(replaced[i]).producer;
    if (quantize != id) b.EraseDead(quantize);
  }
  if (g.IsAlive(id)) b.EraseDead(id);
}

}  // namespace

int SplitPackedInt8(Graph& graph) {
  int count = 0;
  Rewriter b(graph, "qkv_int8");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    const std::vector<int64_t> widths = WidthsOf(graph, graph.node(id));
    const Node* linear = widths.empty() ? nullptr : graph.Producer(graph.node(id).input(0));
    if (linear == nullptr || !IsPlainLinear(graph, *linear)) continue;
    Rewrite(b, id, widths);
    ++count;
  }
  return count;
}

}  // namespace octavo::passes::fusions
