// gated: a product whose halves meet again in a multiplication is made for each half.
// Before: Split(MatMul(x, W [K,2N]) [+ b]) -> act(one) * other        SwiGLU of Phi 3 and GLM, GeGLU of ModernBERT
// After:  act(MatMul(x, W_1) [+ b_1]) * (MatMul(x, W_2) [+ b_2])
// Two products of one activation are one step with what stands behind them, in every recipe, as where exporters wrote gate and up apart; of one product the
// halves are copied apart first. And each half gets a range of its own.
// Exact: the same products are summed in the same order.
// Untouched: halves that anything but element-wise ops reads (Q, K and V), more than two parts (gates of an LSTM, scales and shifts of a norm).
#include <algorithm>
#include <array>
#include <cstring>
#include <format>
#include <optional>
#include <set>

#include "octavo/passes/canonical/util.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

struct Halves {
  NodeId split, product, sum;  // sum invalid: no bias
  std::array<int64_t, 2> sizes;
};

// What element-wise ops make of v and constants alone; empty where anything else reads v, or there is too much of it.
std::set<ValueId> MadeOf(const Graph& g, ValueId v) {
  constexpr size_t kMost = 16;  // GELU by Tanh written out takes 9
  std::set<ValueId> made{v};
  std::vector<ValueId> work{v};
  for (size_t i = 0; i < work.size() && made.size() <= kMost; ++i) {
    for (const ir::Use& u : g.value(work[i]).uses) {
      const Node& n = g.node(u.node);
      if (!canonical::IsElementwise(n.op) && work[i] == v) return {};
      const bool alone = std::ranges::all_of(
          n.inputs, [&](ValueId in) { return !in.valid() || made.contains(in) || g.ConstantOf(in) != nullptr; });
      if (canonical::IsElementwise(n.op) && alone && made.insert(n.output()).second) work.push_back(n.output());
    }
  }
  return made;
}

bool Meet(const Graph& g, ValueId a, ValueId b) {
  const std::set<ValueId> of_a = MadeOf(g, a), of_b = MadeOf(g, b);
  return !of_a.empty() && !of_b.empty() && std::ranges::any_of(of_a, [&](ValueId v) {
    return std::ranges::any_of(g.value(v).uses, [&](const ir::Use& u) {
      const Node& n = g.node(u.node);
      return n.op == Op::kMul && of_b.contains(n.input(1 - u.slot));
    });
  });
}

// W [K,N] or b [N] of floats that lie in memory.
const Tensor* FloatsOf(const Graph& g, ValueId v, int64_t rank) {
  const Tensor* t = v.valid() ? g.ConstantOf(v) : nullptr;
  return t != nullptr && t->rank() == rank && canonical::IsPlainFloat(t->dtype()) ? t : nullptr;
}

std::optional<Halves> HalvesAt(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  if (n.op != Op::kSplit || n.outputs.size() != 2 || !n.output(0).valid() || !n.output(1).valid()) return {};
  // What a file declares of parts whose sizes a run decides may be false.
  if (n.input(1).valid() && g.ConstantOf(n.input(1)) == nullptr) return {};
  const ir::SymShape *x = canonical::ShapeOf(g, n.input(0)), *a = canonical::ShapeOf(g, n.output(0)),
                     *b = canonical::ShapeOf(g, n.output(1));
  if (x == nullptr || a == nullptr || b == nullptr || x->empty() || !a->back().is_number() || !b->back().is_number())
    return {};
  const int64_t axis = n.attrs.Int("axis", 0), rank = static_cast<int64_t>(x->size());
  if ((axis != -1 && axis != rank - 1) || !g.HasOneUse(n.input(0))) return {};
  Halves h{.split = id,
           .product = g.value(n.input(0)).producer,
           .sum = {},
           .sizes = {a->back().number(), b->back().number()}};
  const int64_t columns = h.sizes[0] + h.sizes[1];
  if (g.IsFrom(n.input(0), Op::kAdd)) {
    h.sum = h.product;
    const Node& sum = g.node(h.sum);
    const Tensor* bias = FloatsOf(g, sum.input(1), 1);
    if (bias == nullptr || bias->size() != columns || !g.HasOneUse(sum.input(0))) return {};
    h.product = g.value(sum.input(0)).producer;
  }
  if (!h.product.valid() || g.node(h.product).op != Op::kMatMul) return {};
  const Tensor* w = FloatsOf(g, g.node(h.product).input(1), 2);
  if (w == nullptr || w->shape()[1] != columns || h.sizes[0] != h.sizes[1]) return {};
  if (!Meet(g, n.output(0), n.output(1))) return {};
  return h;
}

// Columns [begin, begin + count) of a tensor's last axis.
Tensor Columns(const Tensor& t, int64_t begin, int64_t count) {
  ir::Shape shape = t.shape();
  const int64_t rows = shape.back() == 0 ? 0 : t.size() / shape.back();
  const size_t size = static_cast<size_t>(quant::BitsOf(t.dtype())) / 8, row = static_cast<size_t>(shape.back()) * size;
  shape.back() = count;
  Tensor some = Tensor::Empty(t.dtype(), std::move(shape));
  const size_t bytes = static_cast<size_t>(count) * size;
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(some.mutable_data() + static_cast<size_t>(r) * bytes,
                t.data() + static_cast<size_t>(r) * row + static_cast<size_t>(begin) * size, bytes);
  return some;
}

void Apart(Rewriter& rw, const Halves& h) {
  Graph& g = rw.graph();
  const std::string source = OriginName(g.node(h.product));
  int64_t begin = 0;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId half = g.node(h.split).output(i);
    const ir::Type type = g.value(half).type;
    rw.At(h.split, {h.product});
    const auto name = [&](NodeId made) {  // the source's own name as well, by which users know it
      g.SetOrigin(made, {std::format("{} (half {})", source, i + 1), source, "pass:gated"});
    };
    const Tensor& w = *g.ConstantOf(g.node(h.product).input(1));
    ValueId y = canonical::Make(rw, Op::kMatMul,
                                {g.node(h.product).input(0), rw.Constant(Columns(w, begin, h.sizes[i]))}, {}, type);
    name(g.value(y).producer);
    if (h.sum.valid()) {
      const Tensor& bias = *g.ConstantOf(g.node(h.sum).input(1));
      y = canonical::Make(rw, Op::kAdd, {y, rw.Constant(Columns(bias, begin, h.sizes[i]))}, {}, type);
    }
    rw.Replace(half, y);
    begin += h.sizes[i];
  }
  rw.EraseDead(h.split);
}

}  // namespace

Result<bool> Gated(Graph& graph, PassRun&) {
  Rewriter rw(graph, "gated");
  for (const NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    if (const auto halves = HalvesAt(graph, id)) Apart(rw, *halves);
  }
  return rw.changed();
}

}  // namespace octavo::passes::quantize
