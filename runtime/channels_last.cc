#include "octavo/runtime/channels_last.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

#include "octavo/ir/infer.h"
#include "octavo/ir/unfold.h"
#include "octavo/runtime/prepared_conv.h"

namespace octavo::runtime {

namespace {

using ir::NodeId;
using Perm = std::vector<int64_t>;

Perm ToLast(size_t rank) {  // [N, C, ...] -> [N, ..., C]
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), 1);
  perm.front() = 0, perm.back() = 1;
  return perm;
}
Perm ToFirst(size_t rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), -1);
  perm[0] = 0, perm[1] = static_cast<int64_t>(rank) - 1;
  return perm;
}

// 0: not known, or no image.
size_t RankOf(const Graph& g, ValueId v) {
  if (!v.valid()) return 0;
  const auto& shape = g.value(v).type.shape;
  return shape && shape->size() >= 3 && shape->size() <= 5 ? shape->size() : 0;
}

bool IsTranspose(const Graph& g, NodeId id, const Perm& perm) {
  if (!id.valid() || g.node(id).op != Op::kTranspose) return false;
  const auto& attrs = g.node(id).attrs;
  return attrs.Has("perm") && attrs.Ints("perm") == perm;
}

bool IsConvolution(Op op) { return op == Op::kConv || op == Op::kConvTranspose; }
bool IsWindow(Op op) {
  return op == Op::kMaxPool || op == Op::kAveragePool || op == Op::kGlobalAveragePool || op == Op::kResize;
}

// A ReduceMean of each channel over all its pixels, which keeps its axes.
bool IsOverPixels(const CompileContext& c, const Node& n, size_t rank) {
  const Tensor* axes = n.op == Op::kReduceMean ? c.Constant(n.input(1)) : nullptr;
  const bool fits = axes != nullptr && rank != 0 && axes->size() + 2 == static_cast<int64_t>(rank);
  if (!fits || n.attrs.Int("keepdims", 1) == 0) return false;
  std::set<int64_t> named;
  for (const int64_t axis : axes->ToInts()) named.insert(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
  return named.size() + 2 == rank && *named.begin() == 2;
}

// One number for each channel of an image: [C, 1, ...] or [1, C, 1, ...].
bool IsPerChannel(const Tensor& t, size_t rank) {
  const size_t have = t.shape().size();
  return have <= rank && have + 1 >= rank && have >= 2 && t.shape()[have + 1 - rank] == t.size();
}

// What becomes of a node where its operands have their channels last.
enum class Kind : uint8_t { kNone, kWindow, kElements, kConcat, kTokens };

// Finds nodes, and the sets of them that values connect.
class Finder {
 public:
  explicit Finder(const CompileContext& c) : c_(c), g_(c.graph), set_(g_.value_capacity()) {
    std::iota(set_.begin(), set_.end(), 0u);
  }

  // Of the nodes to be changed, in order.
  std::vector<std::pair<NodeId, Kind>> Find() {
    std::vector<std::pair<NodeId, Kind>> nodes;
    for (const NodeId id : g_.NodesInOrder()) {
      const Kind kind = KindOf(g_.node(id));
      if (kind == Kind::kNone) continue;
      nodes.emplace_back(id, kind);
      const Node& n = g_.node(id);
      for (size_t i = 0; i < Images(n, kind); ++i) {
        if (c_.Constant(n.input(i)) == nullptr) set_[SetOf(n.input(i).index)] = SetOf(n.output().index);
      }
    }
    std::map<uint32_t, Tally> tallies = Count(nodes);
    std::erase_if(nodes, [&](const auto& node) {
      const Tally& t = tallies[SetOf(g_.node(node.first).output().index)];
      return t.windows == 0 ? !t.known || t.gone < 2 || t.gone <= t.made : t.windows + t.gone < 2;
    });
    return nodes;
  }

  static size_t Images(const Node& n, Kind kind) {  // operands that are images, or constants beside them
    return kind == Kind::kConcat || (kind == Kind::kElements && BinaryOf(n.op)) ? n.inputs.size() : 1;
  }

 private:
  uint32_t SetOf(uint32_t v) {
    while (set_[v] != v) v = set_[v] = set_[set_[v]];
    return v;
  }

  // The image whose channels were put last for the windows of a convolution, as codes or floats; invalid: the node makes none.
  ValueId Unfolded(NodeId id) const {
    const std::optional<ir::Unfold> unfold =
        g_.node(id).op == Op::kConcat ? ir::UnfoldAt(g_, g_.node(id).output()) : std::nullopt;
    if (!unfold) return {};
    NodeId maker = g_.value(unfold->x).producer;
    if (maker.valid() && g_.node(maker).op == Op::kQuantizeLinear) maker = g_.value(g_.node(maker).input(0)).producer;
    const size_t rank = maker.valid() ? RankOf(g_, g_.node(maker).input(0)) : 0;
    return rank != 0 && IsTranspose(g_, maker, ToLast(rank)) ? g_.node(maker).input(0) : ValueId{};
  }

  // What a set gains: windows, whose kernels want channels last, and Transposes that go. Only [N, C, H, W] is known to be an image without a window: means are none,
  // since those of tokens look like means over the pixels of a line.
  struct Tally {
    int windows = 0, gone = 0, made = 0;  // the latter two: Transposes
    bool known = false;                   // four axes or more
  };

  std::map<uint32_t, Tally> Count(const std::vector<std::pair<NodeId, Kind>>& nodes) {
    std::map<uint32_t, Tally> tallies;
    std::set<ValueId> inside, entering;
    for (const auto& [id, kind] : nodes) inside.insert(g_.node(id).output());
    for (const auto& [id, kind] : nodes) {
      const Node& n = g_.node(id);
      Tally& t = tallies[SetOf(n.output().index)];
      t.windows += IsConvolution(n.op) || IsWindow(n.op);
      t.known |= RankOf(g_, n.output()) > 3;
      for (size_t i = 0; i < Images(n, kind); ++i) {
        const ValueId v = n.input(i);
        if (c_.Constant(v) != nullptr || inside.contains(v) || !entering.insert(v).second) continue;
        ++(IsTranspose(g_, g_.value(v).producer, ToFirst(RankOf(g_, v))) ? t.gone : t.made);
      }
      bool leaves = g_.IsGraphOutput(n.output());
      for (const ir::Use& use : g_.value(n.output()).uses) {
        const Node& reader = g_.node(use.node);
        if (IsTranspose(g_, use.node, ToLast(RankOf(g_, n.output())))) {
          ++t.gone;
        } else {
          leaves |= reader.outputs.size() != 1 || !inside.contains(reader.output());
        }
      }
      t.made += leaves;
    }
    for (const NodeId id : g_.NodesInOrder()) {
      if (const ValueId image = Unfolded(id); image.valid()) ++tallies[SetOf(image.index)].windows;
    }
    return tallies;
  }

  Kind KindOf(const Node& n) const {
    const size_t rank = RankOf(g_, n.input(0).valid() ? n.input(0) : ValueId{});
    if (n.outputs.size() != 1 || !n.output().valid() || c_.Constant(n.output()) != nullptr) return Kind::kNone;
    if (RankOf(g_, n.output()) == 0) return Kind::kNone;
    if (n.op == Op::kQuantizeLinear || n.op == Op::kDequantizeLinear)  // with one scale, else it has no kernel
      return rank != 0 && MakeQuantize(n, c_) != nullptr ? Kind::kElements : Kind::kNone;
    if (!c_.Is(n.output(), DType::kF32)) return Kind::kNone;
    if (IsConvolution(n.op)) return rank != 0 && IsConv(n) ? Kind::kWindow : Kind::kNone;
    const bool window = IsWindow(n.op) || IsOverPixels(c_, n, rank);
    if (window) return rank != 0 && RankOf(g_, n.output()) == rank ? Kind::kWindow : Kind::kNone;
    if (n.op == Op::kConcat) return IsConcat(n, RankOf(g_, n.output())) ? Kind::kConcat : Kind::kNone;
    if (n.op == Op::kReshape) return rank != 0 && IsTokens(n) ? Kind::kTokens : Kind::kNone;
    if (UnaryOf(n, c_)) return rank != 0 && c_.Is(n.input(0), DType::kF32) ? Kind::kElements : Kind::kNone;
    if (!BinaryOf(n.op) || n.inputs.size() != 2) return Kind::kNone;
    const bool fits = std::ranges::all_of(n.inputs, [&](ValueId v) { return IsOperand(v, n.output()); });
    return fits ? Kind::kElements : Kind::kNone;
  }

  bool IsConv(const Node& n) const {
    const Tensor* w = c_.Constant(n.input(1));
    return w != nullptr && w->dtype() == DType::kF32 && w->size() > 0 && c_.Is(n.input(0), DType::kF32) &&
           c_.Is(n.input(2), DType::kF32) && c_.Constant(n.input(0)) == nullptr && ConvShapeOf(n, w->shape());
  }

  bool IsConcat(const Node& n, size_t rank) const {
    const int64_t axis = n.attrs.Int("axis", 0);
    return (axis == 1 || axis == 1 - static_cast<int64_t>(rank)) && std::ranges::all_of(n.inputs, [&](ValueId v) {
             return v.valid() && c_.Is(v, DType::kF32) && c_.Constant(v) == nullptr && RankOf(g_, v) == rank;
           });
  }

  // [N, C, ...] -> [N, C, elements], with N and C known to stay.
  bool IsTokens(const Node& n) const {
    const auto &from = *g_.value(n.input(0)).type.shape, &to = *g_.value(n.output()).type.shape;
    return from.size() > 3 && to.size() == 3 && c_.Is(n.input(0), DType::kF32) && from[1].is_number() &&
           from[1].number() > 0 && ProvablyEqual(from[0], to[0]) && ProvablyEqual(from[1], to[1]) &&
           !(to[2].is_number() && to[2].number() == 0);  // a 0 in a target copies what stands there
  }

  // Of an element-wise node: a number, one for each channel, or what has all axes of the result, so that both are turned alike.
  bool IsOperand(ValueId v, ValueId full) const {
    if (!v.valid() || !c_.Is(v, DType::kF32)) return false;
    const Tensor* t = c_.Constant(v);
    const size_t rank = RankOf(g_, full);
    return RankOf(g_, v) == rank || (t != nullptr && t->size() == 1 && t->shape().size() <= rank) ||
           (t != nullptr && IsPerChannel(*t, rank));
  }

  const CompileContext& c_;
  const Graph& g_;
  std::vector<uint32_t> set_;  // by value: another one of its set, itself for one of them
};

class Layer {
 public:
  Layer(const CompileContext& c, Graph& g) : c_(c), g_(g) {}

  void Lay(NodeId id, Kind kind) {
    const Node& n = g_.node(id);
    const size_t rank = RankOf(g_, n.input(0).valid() && kind != Kind::kElements ? n.input(0) : n.output());
    if (kind == Kind::kWindow) {
      const ValueId x = Turn(Last(n.input(0), id), ToFirst(rank), id, id);
      g_.SetInput(id, 0, x);
      const ValueId y = n.output();
      const NodeId next = n.next;
      const ValueId turned = Turn(y, ToLast(rank), id, next);
      KeepFirst(y, turned, rank, g_.value(turned).producer, next);
      return;
    }
    const NodeId next = n.next;
    for (size_t i = 0; i < Finder::Images(n, kind); ++i) {
      const ValueId v = n.input(i);
      const Tensor* t = v.index < c_.constants.size() ? c_.Constant(v) : nullptr;  // what is made here is none
      if (t != nullptr && t->size() == 1) continue;
      g_.SetInput(
          id, i,
          t != nullptr && IsPerChannel(*t, rank) ? g_.AddConstant(t->Reshaped({t->size()}), "", id) : Last(v, id));
    }
    if (kind == Kind::kConcat) g_.SetAttr(id, "axis", static_cast<int64_t>(rank) - 1);
    if (kind == Kind::kTokens) {
      const ir::SymShape& to = *g_.value(n.output()).type.shape;
      const int64_t elements = to[2].is_number() ? to[2].number() : -1;
      g_.SetInput(id, 1, g_.AddConstant(Tensor::S64({3}, {0, elements, to[1].number()}), "", id));
      g_.EraseAttr(id, "allowzero");
    }
    KeepFirst(n.output(), n.output(), RankOf(g_, n.output()), {}, next);
  }

  // Transposes of what is there with its channels last, and all that nobody reads any more.
  void Finish() {
    for (const NodeId id : g_.NodesInOrder()) {
      const Node& n = g_.node(id);
      const auto it = n.op == Op::kTranspose ? last_.find(n.input(0)) : last_.end();
      if (it == last_.end() || it->second == n.output() || !n.attrs.Has("perm")) continue;
      const NodeId maker = g_.value(it->second).producer;  // for a reader that comes later, maybe
      if (maker.valid() && !g_.Before(maker, id)) continue;
      Perm perm = n.attrs.Ints("perm");
      const Perm first = ToFirst(perm.size());
      for (int64_t& axis : perm) axis = first[static_cast<size_t>(axis)];
      if (std::ranges::is_sorted(perm)) {
        g_.ReplaceAllUses(n.output(), it->second);
      } else {
        g_.SetInput(id, 0, it->second), g_.SetAttr(id, "perm", perm);
      }
    }
    for (const NodeId id : g_.NodesInOrder() | std::views::reverse) {
      const Node& n = g_.node(id);
      if (n.op != Op::kTranspose && n.op != Op::kConstant) continue;
      if (g_.value(n.output()).uses.empty() && !g_.IsGraphOutput(n.output())) g_.Erase(id);
    }
  }

 private:
  ValueId Turn(ValueId v, Perm perm, NodeId origin, NodeId before) {
    const NodeId id = g_.AddNode(Op::kTranspose, {v}, 1, {{"perm", std::move(perm)}}, g_.node(origin).name, before);
    g_.SetOrigin(id, g_.node(origin).origin);
    const ir::SymShape from = *g_.value(v).type.shape;
    ir::SymShape to;
    for (const int64_t axis : g_.node(id).attrs.Ints("perm")) to.push_back(from[static_cast<size_t>(axis)]);
    g_.SetType(g_.node(id).output(), {g_.value(v).type.dtype, std::move(to)});
    return g_.node(id).output();
  }

  // v with its channels last, for this reader.
  ValueId Last(ValueId v, NodeId reader) {
    if (const auto it = last_.find(v); it != last_.end()) return it->second;
    const size_t rank = RankOf(g_, v);
    const NodeId producer = g_.value(v).producer;
    if (IsTranspose(g_, producer, ToFirst(rank)) && RankOf(g_, g_.node(producer).input(0)) == rank)
      return last_[v] = g_.node(producer).input(0);
    return last_[v] = Turn(v, ToLast(rank), reader, reader);
  }

  // What others read as v is `turned`, whose channels are last, turned back. `but` goes on reading v.
  void KeepFirst(ValueId v, ValueId turned, size_t rank, NodeId but, NodeId before) {
    if (v == turned) {  // v was [N, C, ...] so far
      ir::SymShape shape = *g_.value(v).type.shape;
      std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
      g_.SetType(v, {g_.value(v).type.dtype, std::move(shape)});
    }
    const ValueId first = Turn(turned, ToFirst(rank), g_.value(v).producer, before);
    const NodeId turn = g_.value(first).producer;
    g_.ReplaceAllUses(v, first);
    if (v == turned) g_.SetInput(turn, 0, v);
    if (but.valid()) g_.SetInput(but, 0, v);
    last_[first] = turned;
  }

  const CompileContext& c_;
  Graph& g_;
  std::map<ValueId, ValueId> last_;  // of what is [N, C, ...]
};

}  // namespace

bool LayChannelsLast(const CompileContext& c, Graph& graph) {
  if (c.SumsInOrder()) return false;
  const std::vector<std::pair<NodeId, Kind>> nodes = Finder(c).Find();
  if (nodes.empty()) return false;
  Layer layer(c, graph);
  for (const auto& [id, kind] : nodes) layer.Lay(id, kind);
  layer.Finish();
  return true;
}

std::optional<Turned> TurnedOf(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const size_t rank = RankOf(g, n.input(0));
  if (rank == 0) return {};
  const NodeId before = g.value(n.input(0)).producer;
  if (!IsTranspose(g, before, ToFirst(rank)) || !g.HasOneUse(n.input(0)) || !g.HasOneUse(n.output())) return {};
  const NodeId behind = g.value(n.output()).uses[0].node;
  if (!IsTranspose(g, behind, ToLast(rank))) return {};
  return Turned{before, behind, g.node(before).input(0), g.node(behind).output()};
}

Made MadeOf(const Turned& turned, const Graph& g, ir::NodeId id) {
  Made made;
  made.nodes = {turned.before, id, turned.behind};
  made.inputs = g.node(id).inputs, made.inputs[0] = turned.x, made.outputs = {turned.y};
  return made;
}

KernelPtr InterpretedOf(const Made& made, const CompileContext& c, Op op) {
  Chain all;
  all.nodes = made.nodes, all.inputs = made.inputs;
  return MakeNodes(all, c, InterpreterOf(op));
}

Made MakeTurned(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains) {
  const Node& n = c.graph.node(id);
  if (IsConvolution(n.op)) return MakeTurnedConv(id, c, chains);
  if (n.op == Op::kResize) return MakeTurnedResize(id, c);
  const bool pools = IsWindow(n.op) || IsOverPixels(c, n, RankOf(c.graph, n.input(0)));
  return pools && !c.SumsInOrder() ? MakeTurnedPool(id, c) : Made();
}

}  // namespace octavo::runtime
