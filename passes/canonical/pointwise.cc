// pointwise: a convolution of kernel 1 that makes Q, K or V of attention, or reads what attention gives, is a Linear.
// Before: Conv(x [B,C,H,W], W [N,C,1,1], bias) -> views -> attention
// After:  x -> Reshape [B,C,H*W] -> Transpose 0,2,1 -> MatMul W^T -> Add bias -> Transpose 0,2,1 -> Reshape [B,N,H,W] -> views -> attention
// A Split of channels right behind it becomes one of the last axis. `views` then cancels the Transposes behind it against those of the heads, so a
// projection of Q, K and V costs one Transpose of x instead of one for each of them, and what comes out of attention none. Where something else
// reads the channels (a convolution of V that tells positions), it gets a Transpose of its own, which one that is spared makes up for.
// Exact: the same products are summed in the same order, then the bias.
// Untouched: stride, padding, groups, weights that are no constants; 16 bits with a bias, since a Conv rounds once; a projection alone on its
// activation that something else than a product reads, and every other convolution: these stay in their layout, where they need no Transpose.
#include <algorithm>
#include <map>
#include <set>

#include "octavo/passes/attention.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"
#include "octavo/passes/unfold.h"

namespace octavo::passes::canonical {

namespace {

constexpr size_t kMostValues = 64;  // between a convolution and its attention

bool IsView(Op op) { return IsReshapeLike(op) || op == Op::kTranspose || op == Op::kIdentity; }

bool IsProduct(const Node& n) { return n.op == Op::kMatMul || IsAttentionOp(n); }

// Every reader of v is a product of activations, at once or behind such nodes.
bool ProductsAlone(const Graph& g, ValueId v) {
  std::vector<ValueId> work{v};
  for (size_t i = 0; i < work.size(); ++i) {
    if (g.IsGraphOutput(work[i]) || work.size() > kMostValues) return false;
    for (const ir::Use& u : g.value(work[i]).uses) {
      const Node& n = g.node(u.node);
      if (IsProduct(n)) continue;
      if (u.slot != 0 || !KeepsChannels(g, n)) return false;
      work.insert(work.end(), n.outputs.begin(), n.outputs.end());
    }
  }
  return true;
}

// Convolutions that read what attention gives, through views.
void ConvsBelow(const Graph& g, ValueId result, std::set<NodeId>* convs) {
  std::vector<ValueId> work{result};
  for (size_t i = 0; i < work.size() && i < kMostValues; ++i) {
    for (const ir::Use& u : g.value(work[i]).uses) {
      const Node& n = g.node(u.node);
      if (u.slot != 0) continue;
      if (n.op == Op::kConv) convs->insert(u.node);
      if (IsView(n.op)) work.push_back(n.output());
    }
  }
}

std::set<NodeId> ConvsOfAttention(const Graph& g) {
  std::set<NodeId> convs;
  for (const AttentionCore& core : FindAttentionCores(g)) {
    std::map<ValueId, int> operands;  // that come from one activation
    std::vector<NodeId> behind;
    for (ValueId operand : {core.q, core.k, core.v}) {
      const NodeId conv = ConvBehind(g, operand);
      if (!conv.valid()) continue;
      behind.push_back(conv);
      ++operands[g.node(conv).input(0)];
    }
    for (NodeId conv : behind) {
      if (operands[g.node(conv).input(0)] > 1 || ProductsAlone(g, g.node(conv).output())) convs.insert(conv);
    }
    ConvsBelow(g, g.node(core.product_pv.valid() ? core.product_pv : core.center).output(), &convs);
  }
  return convs;
}

// The last axis of `rows` [B,P,N] as the channels of [B,N,spatial dims], which are those of x.
ValueId AsChannels(Rewriter& rw, ValueId rows, ValueId x) {
  const Graph& g = rw.graph();
  const SymShape in = *ShapeOf(g, x);
  const ValueId y = MakeTranspose(rw, rows, {0, 2, 1});
  if (in.size() == 3) return y;
  SymShape out = in;
  out[1] = ShapeOf(g, y)->at(1);
  if (CanReshape(*ShapeOf(g, y), out)) return MakeReshape(rw, y, out);
  const auto rank = static_cast<int64_t>(in.size());
  const auto dims = [&](int64_t from, int64_t to) {
    return Make(rw, Op::kShape, {x}, Attrs{{"start", from}, {"end", to}}, Type{DType::kS64, SymShape{to - from}});
  };
  const ValueId target = Make(rw, Op::kConcat, {dims(0, 1), MakeInts(rw, {out[1].number()}), dims(2, rank)},
                              Attrs{{"axis", int64_t{0}}}, Type{DType::kS64, SymShape{rank}});
  return Make(rw, Op::kReshape, {y, target}, {}, Type{DTypeOf(g, y), out});
}

// The only reader of v where it splits the channels into parts of known sizes; invalid: none.
NodeId ChannelSplit(const Graph& g, ValueId v) {
  if (!g.HasOneUse(v)) return {};
  const NodeId id = g.value(v).uses.front().node;
  const Node& n = g.node(id);
  const int64_t rank = RankOf(g, v), axis = n.attrs.Int("axis", 0);
  if (n.op != Op::kSplit || (axis != 1 && axis != 1 - rank)) return {};
  // What a file declares of parts whose sizes a run decides may be false.
  if (n.input(1).valid() && g.ConstantOf(n.input(1)) == nullptr) return {};
  for (ValueId part : n.outputs) {
    const SymShape* s = ShapeOf(g, part);
    if (s == nullptr || !(*s)[1].is_number()) return {};
  }
  return id;
}

void ToLinear(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const ValueId x = n.input(0);
  const SymShape in = *ShapeOf(g, x);
  Dim positions = 1;
  for (size_t i = 2; i < in.size(); ++i) positions = positions * in[i];
  const DType dtype = DTypeOf(g, n.output());
  const NodeId split = ChannelSplit(g, n.output());
  rw.At(id, {id});
  const ValueId flat = in.size() == 3 ? x : MakeReshape(rw, x, {in[0], in[1], positions});
  if (!flat.valid()) return;
  const Tensor& w = *g.ConstantOf(n.input(1));
  const Type type{dtype, SymShape{in[0], positions, Dim(w.shape()[0])}};
  const std::string name = g.value(n.input(1)).name;
  ValueId y = Make(rw, Op::kMatMul,
                   {MakeTranspose(rw, flat, {0, 2, 1}), rw.Constant(WindowMatrix(w), name + "_matrix")}, {}, type);
  if (n.input(2).valid()) y = Make(rw, Op::kAdd, {y, n.input(2)}, {}, type);
  if (!split.valid()) return ReplaceNode(rw, id, AsChannels(rw, y, x));
  const std::vector<ValueId> parts = g.node(split).outputs;
  Ints sizes;
  for (ValueId part : parts) sizes.push_back((*ShapeOf(g, part))[1].number());
  const NodeId made = rw.CreateN(Op::kSplit, {y, MakeInts(rw, sizes)}, parts.size(), {{"axis", int64_t{2}}});
  for (size_t i = 0; i < parts.size(); ++i) {
    const ValueId rows = g.node(made).output(i);
    rw.graph().SetType(rows, {dtype, SymShape{in[0], positions, Dim(sizes[i])}});
    rw.Replace(parts[i], AsChannels(rw, rows, x));
  }
  rw.EraseDead(split);
}

}  // namespace

Result<bool> Pointwise(Graph& graph, PassRun&) {
  const auto any = [&graph] {
    return std::ranges::any_of(graph.NodesInOrder(), [&](NodeId id) { return IsPointwise(graph, graph.node(id)); });
  };
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  if (!any()) return false;
  Rewriter rw(graph, "pointwise");
  for (NodeId id : ConvsOfAttention(graph)) {
    if (IsPointwise(graph, graph.node(id))) ToLinear(rw, id);
  }
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("pointwise made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
