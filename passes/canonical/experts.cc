// experts: a product by a constant of one matrix for each expert, or each head, is made of Linears.
// Before: MatMul(x [1,T,K], W [E,K,N]) [+ b [E,1,N]]      x is shared, by broadcasting or by Expand
// After:  x -> MatMul [W_1 | .. | W_E] [+ b] -> Reshape [T,E,N] -> Transpose 1,0,2
// Before: MatMul(x [E,T,K], W [E,K,N]) [+ b [E,1,N]]      before or behind another such product of E experts, or summed over them
// After:  Split(x, E) -> MatMul W_e [+ b_e] each -> Concat
// Linears have fast kernels where the batched product runs in plain loops, and every recipe quantizes them, each expert with scales of its own.
// Exact: the same products are summed in the same order.
// Untouched: one matrix or more than 256, other ranks of x, products with a constant of as many matrices that stand alone: positions of
// heads, whose batched product is as good.
#include <algorithm>
#include <cstring>
#include <format>
#include <map>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int64_t kMostExperts = 256;

// One product, and the sum behind it that takes a bias for each expert.
struct Product {
  NodeId matmul, sum;  // sum invalid: no bias
  ValueId x;           // shared: [T,K] or [1,T,K]
  bool shared = false;
};

bool IsRank(const Graph& g, ValueId v, int64_t rank) { return RankOf(g, v) == rank; }

// What stands before an Expand along the first dim alone; v where there is none.
ValueId BeforeExpand(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op != Op::kExpand || !IsRank(g, v, 3) || !IsRank(g, n->input(0), 3)) return v;
  const SymShape &in = *ShapeOf(g, n->input(0)), &out = *ShapeOf(g, v);
  return IsNumber(in[0], 1) && ProvablyEqual(in[1], out[1]) && ProvablyEqual(in[2], out[2]) ? n->input(0) : v;
}

std::optional<Product> ProductAt(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const Tensor* w = n.op == Op::kMatMul ? g.ConstantOf(n.input(1)) : nullptr;
  if (w == nullptr || w->rank() != 3 || !IsPlainFloat(w->dtype()) || w->size() == 0) return {};
  const int64_t experts = w->shape()[0];
  if (experts < 2 || experts > kMostExperts) return {};
  Product p{id, {}, BeforeExpand(g, n.input(0))};
  const SymShape* x = ShapeOf(g, p.x);
  if (x == nullptr || x->size() < 2 || x->size() > 3 || ShapeOf(g, n.output()) == nullptr) return {};
  p.shared = x->size() == 2 || IsNumber((*x)[0], 1);
  if (!p.shared && !IsNumber((*x)[0], experts)) return {};
  if (!g.HasOneUse(n.output())) return p;
  const NodeId user = g.value(n.output()).uses.front().node;
  const Tensor* bias = g.node(user).op == Op::kAdd ? g.ConstantOf(g.node(user).input(1)) : nullptr;
  const bool each = bias != nullptr && bias->shape() == ir::Shape{experts, 1, w->shape()[2]};
  // In 16 bits a product is rounded before the sum, here as there.
  if (each && bias->dtype() == w->dtype()) p.sum = user;
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
  const auto experts = [&g](const Product& one) { return g.ConstantOf(g.node(one.matmul).input(1))->shape()[0]; };
  return p.matmul != q.matmul && experts(p) == experts(q) &&
         (LeadsTo(g, p.matmul, q.matmul) || LeadsTo(g, q.matmul, p.matmul));
}

// The results of all experts are weighed and summed: ReduceSum over the first dim, behind element-wise ops.
bool IsSummed(const Graph& g, NodeId from) {
  ValueId v = g.node(from).output();
  for (int steps = 0; steps < 8 && g.HasOneUse(v); ++steps) {
    const Node& n = g.node(g.value(v).uses.front().node);
    if (n.op == Op::kReduceSum) return ConstInts(g, n.input(1)) == Ints{0};
    if (!IsElementwise(n.op)) return false;
    v = n.output();
  }
  return false;
}

// All rows of x in one product: [K, E*N], the columns of the first expert first. A bias [E,1,N] is [E*N] as it lies.
Tensor SideBySide(const Tensor& w) {
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

ValueId Shared(Rewriter& rw, const Product& p, const Tensor& w, const Tensor* bias) {
  const Graph& g = rw.graph();
  const SymShape x = *ShapeOf(g, p.x);
  const int64_t experts = w.shape()[0], columns = w.shape()[2];
  const Dim tokens = x[x.size() - 2];
  Type wide{w.dtype(), x};
  wide.shape->back() = Dim(experts * columns);
  const SymShape split{tokens, Dim(experts), Dim(columns)};
  if (!CanReshape(*wide.shape, split)) return {};
  ValueId y = Make(rw, Op::kMatMul, {p.x, rw.Constant(SideBySide(w))}, {}, wide);
  if (bias != nullptr) y = Make(rw, Op::kAdd, {y, rw.Constant(bias->Reshaped({experts * columns}))}, {}, wide);
  return MakeTranspose(rw, MakeReshape(rw, y, split), {1, 0, 2});
}

ValueId Separate(Rewriter& rw, const Product& p, const Tensor& w, const Tensor* bias) {
  const Graph& g = rw.graph();
  const int64_t experts = w.shape()[0];
  SymShape in = *ShapeOf(g, p.x);
  in[0] = Dim(1);
  const NodeId split = rw.CreateN(Op::kSplit, {p.x, MakeInts(rw, Ints(static_cast<size_t>(experts), 1))},
                                  static_cast<size_t>(experts), {{"axis", int64_t{0}}});
  SymShape out = in;
  out[2] = Dim(w.shape()[2]);
  std::vector<ValueId> parts;
  const std::string source = OriginName(g.node(p.matmul));
  for (int64_t i = 0; i < experts; ++i) {
    const ValueId part = g.node(split).output(static_cast<size_t>(i));
    rw.graph().SetType(part, {w.dtype(), in});
    ValueId y = Make(rw, Op::kMatMul, {part, rw.Constant(MatrixOf(w, i))}, {}, {w.dtype(), out});
    rw.graph().SetOrigin(g.value(y).producer, {std::format("{} (expert {})", source, i), "pass:experts"});
    if (bias != nullptr)
      y = Make(rw, Op::kAdd, {y, rw.Constant(MatrixOf(*bias, i).Reshaped({w.shape()[2]}))}, {}, {w.dtype(), out});
    parts.push_back(y);
  }
  out[0] = Dim(experts);
  return Make(rw, Op::kConcat, std::move(parts), Attrs{{"axis", int64_t{0}}}, {w.dtype(), out});
}

}  // namespace

Result<bool> ExpertLinears(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  std::vector<Product> products;
  for (NodeId id : graph.NodesInOrder()) {
    if (const auto p = ProductAt(graph, id)) products.push_back(*p);
  }
  std::vector<NodeId> chosen;
  for (const Product& p : products) {
    if (p.shared || IsSummed(graph, p.matmul) ||
        std::ranges::any_of(products, [&](const Product& q) { return ArePartners(graph, p, q); }))
      chosen.push_back(p.matmul);
  }
  Rewriter rw(graph, "experts");
  for (NodeId id : chosen) {
    const Product p = *ProductAt(graph, id);  // again: what it reads may have been another one's result
    const NodeId last = p.sum.valid() ? p.sum : id;
    rw.At(last, last == id ? std::vector<NodeId>{id} : std::vector<NodeId>{id, last});
    const Tensor w = *graph.ConstantOf(graph.node(id).input(1));
    const Tensor* bias = p.sum.valid() ? graph.ConstantOf(graph.node(p.sum).input(1)) : nullptr;
    const ValueId y = p.shared ? Shared(rw, p, w, bias) : Separate(rw, p, w, bias);
    if (y.valid()) ReplaceNode(rw, last, y);
  }
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("experts made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
