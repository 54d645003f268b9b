// experts: a product by a constant of one matrix for each expert, or each head, is made of Linears.
// Before: MatMul(x [..,1,T,K], W [E,K,N]) [+ b [E,1,N]]      x is shared, by broadcasting or by Expand
// After:  x -> MatMul [W_1 | .. | W_E] [+ b] -> Reshape [..,T,E,N] -> Transpose of T and E
// Before: MatMul(x [..,E,T,K], W [E,K,N]) [+ b [E,1,N]]      before or behind another such product of E experts, summed over them, or in a
//         graph with a router that chooses among E
// After:  Split(x, E) -> MatMul W_e [+ b_e] each -> Concat
// Before: MatMul(W [E,N,K], x [..,K,T])                      either way
// After:  the same of Transpose(x), transposed
// Linears have fast kernels where the batched product runs in plain loops, and every recipe quantizes them, each expert with scales of its own.
// Exact: the same products are summed in the same order.
// Untouched: one matrix or more than 256, products with a constant of as many matrices that stand alone: positions of heads, whose batched
// product is as good.
#include "octavo/passes/experts.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <numeric>
#include <optional>
#include <set>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int64_t kMostExperts = 256;

// One product, and the sum behind it that takes a bias for each expert.
struct Product {
  NodeId matmul, sum;  // sum invalid: no bias
  ValueId x;           // [..,E,T,K]; shared: [T,K] or [..,1,T,K]
  Tensor w;            // [E,K,N], or [E,N,K] on the left
  bool shared = false, left = false;
  int64_t experts() const { return w.shape()[0]; }
  int64_t columns() const { return w.shape()[left ? 1 : 2]; }
};

// What stands before an Expand along the third dim from the end alone; v where there is none.
ValueId BeforeExpand(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op != Op::kExpand || !ShapeOf(g, v) || !ShapeOf(g, n->input(0))) return v;
  const SymShape &in = *ShapeOf(g, n->input(0)), &out = *ShapeOf(g, v);
  if (in.size() < 3 || in.size() != out.size() || !IsNumber(in[in.size() - 3], 1)) return v;
  for (size_t i = 0; i < in.size(); ++i) {
    if (i + 3 != in.size() && !ProvablyEqual(in[i], out[i])) return v;
  }
  return n->input(0);
}

// A constant of E matrices, dims of 1 in front left out; no value: it is none.
std::optional<Tensor> MatricesOf(const Graph& g, ValueId v, size_t rank) {
  const Tensor* w = v.valid() ? g.ConstantOf(v) : nullptr;
  if (w == nullptr || w->rank() < 3 || !IsPlainFloat(w->dtype()) || w->size() == 0) return {};
  ir::Shape shape = w->shape();
  while (shape.size() > 3 && shape.front() == 1) shape.erase(shape.begin());
  if (shape.size() != 3 || static_cast<size_t>(w->rank()) > std::max<size_t>(rank, 3)) return {};
  if (shape[0] < 2 || shape[0] > kMostExperts) return {};
  return w->Reshaped(shape);
}

// Shapes of the one product of all experts, before and after its columns are split up.
SymShape SideBySide(const Product& p, SymShape x) {
  if (p.left) std::swap(x[x.size() - 2], x.back());
  x.back() = Dim(p.experts() * p.columns());
  return x;
}
SymShape SplitUp(const Product& p, const SymShape& x) {
  SymShape split(x.begin(), x.end() - std::min<std::ptrdiff_t>(3, static_cast<std::ptrdiff_t>(x.size())));
  split.insert(split.end(), {p.left ? x.back() : x[x.size() - 2], Dim(p.experts()), Dim(p.columns())});
  return split;
}

std::optional<Product> ProductAt(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  if (n.op != Op::kMatMul || ShapeOf(g, n.output()) == nullptr) return {};
  Product p{.matmul = id, .sum = {}, .x = {}, .w = {}};
  p.left = g.ConstantOf(n.input(0)) != nullptr;
  p.x = BeforeExpand(g, n.input(p.left ? 1 : 0));
  const SymShape* x = ShapeOf(g, p.x);
  if (x == nullptr || x->size() < 2) return {};
  const auto w = MatricesOf(g, n.input(p.left ? 0 : 1), x->size());
  if (!w) return {};
  p.w = *w;
  p.shared = x->size() == 2 || IsNumber((*x)[x->size() - 3], 1);
  if (!p.shared && !IsNumber((*x)[x->size() - 3], p.experts())) return {};
  if (p.shared && !CanReshape(SideBySide(p, *x), SplitUp(p, *x))) return {};
  if (p.left || !g.HasOneUse(n.output())) return p;
  const NodeId user = g.value(n.output()).uses.front().node;
  const Tensor* bias = g.node(user).op == Op::kAdd ? g.ConstantOf(g.node(user).input(1)) : nullptr;
  const bool each = bias != nullptr && bias->shape() == ir::Shape{p.experts(), 1, p.w.shape()[2]};
  // In 16 bits a product is rounded before the sum, here as there.
  if (each && bias->dtype() == p.w.dtype()) p.sum = user;
  return p;
}

// Through all that is no product.
bool LeadsTo(const Graph& g, NodeId from, NodeId to) {
  std::vector<ValueId> work{g.node(from).output()};
  for (size_t i = 0; i < work.size() && i < 64; ++i) {
    for (const ir::Use& u : g.value(work[i]).uses) {
      if (u.node == to) return true;
      const Node& n = g.node(u.node);
      for (ValueId v : n.outputs) {
        if (n.op != Op::kMatMul && v.valid()) work.push_back(v);
      }
    }
  }
  return false;
}

bool ArePartners(const Graph& g, const Product& p, const Product& q) {
  return p.matmul != q.matmul && p.experts() == q.experts() &&
         (LeadsTo(g, p.matmul, q.matmul) || LeadsTo(g, q.matmul, p.matmul));
}

// The results of all experts are weighed and summed: a ReduceSum behind element-wise ops and views.
bool IsSummed(const Graph& g, NodeId from) {
  ValueId v = g.node(from).output();
  for (int steps = 0; steps < 8 && g.HasOneUse(v); ++steps) {
    const Node& n = g.node(g.value(v).uses.front().node);
    if (n.op == Op::kReduceSum) return true;
    if (!IsElementwise(n.op) && !IsReshapeLike(n.op) && n.op != Op::kTranspose) return false;
    v = n.output();
  }
  return false;
}

// Numbers of experts that Linears of the graph choose among.
std::set<int64_t> RoutersOf(const Graph& g) {
  std::set<int64_t> all;
  for (NodeId id : g.NodesInOrder()) {
    const Tensor* w = g.node(id).op == Op::kMatMul ? g.ConstantOf(g.node(id).input(1)) : nullptr;
    if (w != nullptr && w->rank() == 2 && w->shape()[1] <= kMostExperts && IsRouter(g, id)) all.insert(w->shape()[1]);
  }
  return all;
}

// All rows of x in one product: [K, E*N], the columns of the first expert first. A bias [E,1,N] is [E*N] as it lies.
Tensor AllColumns(const Tensor& w) {
  const int64_t e = w.shape()[0], k = w.shape()[1], n = w.shape()[2];
  const size_t row = static_cast<size_t>(n) * static_cast<size_t>(quant::BitsOf(w.dtype())) / 8;
  Tensor all = Tensor::Empty(w.dtype(), {k, e * n});
  for (int64_t i = 0; i < e; ++i) {
    for (int64_t r = 0; r < k; ++r)
      std::memcpy(all.mutable_data() + static_cast<size_t>(r * e + i) * row,
                  w.data() + static_cast<size_t>(i * k + r) * row, row);
  }
  return all;
}

// Matrix i of [E,K,N].
Tensor MatrixOf(const Tensor& w, int64_t i) {
  ir::Shape shape(w.shape().begin() + 1, w.shape().end());
  Tensor one = Tensor::Empty(w.dtype(), std::move(shape));
  std::memcpy(one.mutable_data(), w.data() + static_cast<size_t>(i) * one.byte_size(), one.byte_size());
  return one;
}

// [E,N,K] as [E,K,N].
Tensor Flipped(const Tensor& w) {
  const int64_t e = w.shape()[0], n = w.shape()[1], k = w.shape()[2];
  const size_t size = static_cast<size_t>(quant::BitsOf(w.dtype())) / 8;
  Tensor out = Tensor::Empty(w.dtype(), {e, k, n});
  for (int64_t i = 0; i < w.size(); ++i) {
    const int64_t matrix = i / (n * k), row = i / k % n, column = i % k;
    std::memcpy(out.mutable_data() + static_cast<size_t>((matrix * k + column) * n + row) * size,
                w.data() + static_cast<size_t>(i) * size, size);
  }
  return out;
}

ValueId Shared(Rewriter& rw, const Product& p, const Tensor* bias) {
  const SymShape x = *ShapeOf(rw.graph(), p.x);
  const Type wide{p.w.dtype(), SideBySide(p, x)};
  ValueId y = Make(rw, Op::kMatMul, {p.x, rw.Constant(AllColumns(p.w))}, {}, wide);
  if (bias != nullptr) y = Make(rw, Op::kAdd, {y, rw.Constant(bias->Reshaped({bias->size()}))}, {}, wide);
  SymShape split = SplitUp(p, x);
  Ints perm(split.size());
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[perm.size() - 3], perm[perm.size() - 2]);
  return MakeTranspose(rw, MakeReshape(rw, y, split), std::move(perm));
}

ValueId Separate(Rewriter& rw, const Product& p, const Tensor* bias) {
  const Graph& g = rw.graph();
  SymShape in = *ShapeOf(g, p.x);
  const size_t axis = in.size() - 3;
  const Attrs along{{"axis", static_cast<int64_t>(axis)}};
  in[axis] = Dim(1);
  const auto experts = static_cast<size_t>(p.experts());
  const NodeId split = rw.CreateN(Op::kSplit, {p.x, MakeInts(rw, Ints(experts, 1))}, experts, along);
  SymShape out = in;
  out.back() = Dim(p.w.shape()[2]);
  std::vector<ValueId> parts;
  const std::string source = OriginName(g.node(p.matmul));
  for (int64_t i = 0; i < p.experts(); ++i) {
    const ValueId part = g.node(split).output(static_cast<size_t>(i));
    rw.graph().SetType(part, {p.w.dtype(), in});
    ValueId y = Make(rw, Op::kMatMul, {part, rw.Constant(MatrixOf(p.w, i))}, {}, {p.w.dtype(), out});
    rw.graph().SetOrigin(g.value(y).producer, {std::format("{} (expert {})", source, i), "pass:experts"});
    if (bias != nullptr)
      y = Make(rw, Op::kAdd, {y, rw.Constant(MatrixOf(*bias, i).Reshaped({p.w.shape()[2]}))}, {}, {p.w.dtype(), out});
    parts.push_back(y);
  }
  out[axis] = Dim(p.experts());
  return Make(rw, Op::kConcat, std::move(parts), along, {p.w.dtype(), out});
}

ValueId FlipLast(Rewriter& rw, ValueId v) { return MakeTranspose(rw, v, LastTwoSwapped(RankOf(rw.graph(), v))); }

ValueId AsLinears(Rewriter& rw, Product p) {
  const Tensor* bias = p.sum.valid() ? rw.graph().ConstantOf(rw.graph().node(p.sum).input(1)) : nullptr;
  if (p.left) {
    p.x = FlipLast(rw, p.x);
    p.w = Flipped(p.w);
    p.left = false;
    return FlipLast(rw, p.shared ? Shared(rw, p, bias) : Separate(rw, p, bias));
  }
  return p.shared ? Shared(rw, p, bias) : Separate(rw, p, bias);
}

}  // namespace

Result<bool> ExpertLinears(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  std::vector<Product> products;
  for (NodeId id : graph.NodesInOrder()) {
    if (const auto p = ProductAt(graph, id)) products.push_back(*p);
  }
  const std::set<int64_t> routed = products.empty() ? std::set<int64_t>() : RoutersOf(graph);
  std::vector<NodeId> chosen;
  for (const Product& p : products) {
    if (p.shared || routed.contains(p.experts()) || IsSummed(graph, p.matmul) ||
        std::ranges::any_of(products, [&](const Product& q) { return ArePartners(graph, p, q); }))
      chosen.push_back(p.matmul);
  }
  products.clear();  // they hold all weights
  Rewriter rw(graph, "experts");
  for (NodeId id : chosen) {
    const auto p = ProductAt(graph, id);  // again: what it reads may have been another one's result
    if (!p) continue;
    const NodeId last = p->sum.valid() ? p->sum : id;
    rw.At(last, last == id ? std::vector<NodeId>{id} : std::vector<NodeId>{id, last});
    ReplaceNode(rw, last, AsLinears(rw, *p));
  }
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("experts made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
