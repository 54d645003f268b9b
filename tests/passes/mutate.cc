#include "octavo/tests/passes/mutate.h"

#include <algorithm>
#include <set>

#include "octavo/passes/attention.h"

namespace octavo::passes {

namespace {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

class Mutator {
 public:
  Mutator(Graph& graph, std::mt19937& rng) : g_(graph), rng_(rng) { FindInterior(); }

  std::string Once() {
    const std::vector<NodeId> nodes = g_.NodesInOrder();
    const NodeId id = nodes[rng_() % nodes.size()];
    if (g_.node(id).op == Op::kConstant) return "";
    switch (rng_() % 9) {
      case 0:
        return SwapOperands(id);
      case 1:
        return Insert(id, "identity", [&](ValueId v, NodeId at) { return Make(Op::kIdentity, {v}, {}, at); });
      case 2:
        return CastPair(id);
      case 3:
        return DoubleTranspose(id);
      case 4:
        return SplitReshape(id);
      case 5:
        return Reorder(id);
      case 6:
        return Rename(id);
      case 7:
        return ExtraUser(id);
      default:
        return UnsqueezeSqueeze(id);
    }
  }

 private:
  // Values between a score product and the value product: an extra reader of these must keep a core from fusing.
  void FindInterior() {
    for (NodeId id : g_.NodesInOrder()) hidden_ = hidden_ || g_.node(id).op == Op::kIf;
    for (const AttentionCore& core : FindAttentionCores(g_)) {
      if (!core.product_qk.valid()) continue;
      std::vector<ValueId> work{g_.node(core.product_qk).output()};
      while (!work.empty()) {
        const ValueId v = work.back();
        work.pop_back();
        if (!interior_.insert(v).second) continue;
        for (const ir::Use& u : g_.value(v).uses) {
          if (u.node == core.product_pv) continue;
          for (ValueId o : g_.node(u.node).outputs) {
            if (o.valid()) work.push_back(o);
          }
        }
      }
    }
  }

  ValueId Make(Op op, std::vector<ValueId> in, ir::Attrs attrs, NodeId before) {
    const NodeId id = g_.AddNode(op, std::move(in), 1, std::move(attrs), "mutant", before);
    return g_.node(id).output();
  }
  ValueId Ints(std::vector<int64_t> v, NodeId before) {
    const auto n = static_cast<int64_t>(v.size());
    return g_.AddConstant(ir::Tensor::S64({n}, std::move(v)), "", before);
  }
  ValueId Input0(NodeId id) const { return g_.node(id).input(0); }

  // Puts `make` between a node and its first input.
  template <typename F>
  std::string Insert(NodeId id, const char* what, F make) {
    const ValueId v = Input0(id);
    if (!v.valid()) return "";
    const ValueId made = make(v, id);
    if (!made.valid()) return "";
    g_.SetType(made, g_.value(v).type);
    if (interior_.contains(v)) interior_.insert(made);
    g_.SetInput(id, 0, made);
    return what + (" " + g_.value(v).name);
  }

  std::string SwapOperands(NodeId id) {
    const Op op = g_.node(id).op;
    if (op != Op::kAdd && op != Op::kMul && op != Op::kAnd && op != Op::kOr && op != Op::kEqual) return "";
    const ValueId a = g_.node(id).input(0), b = g_.node(id).input(1);
    g_.SetInput(id, 0, b);
    g_.SetInput(id, 1, a);
    return "swap " + g_.node(id).name;
  }

  std::string CastPair(NodeId id) {
    return Insert(id, "cast_pair", [&](ValueId v, NodeId at) {
      const DType from = g_.value(v).type.dtype;
      const DType wide = from == DType::kF32 ? DType::kF64 : from == DType::kS32 ? DType::kS64 : from;
      if (wide == DType::kUndefined || wide == DType::kString) return ValueId{};
      const ValueId up = Make(Op::kCast, {v}, {{"to", static_cast<int64_t>(wide)}}, at);
      g_.SetType(up, {wide, g_.value(v).type.shape});
      if (interior_.contains(v)) interior_.insert(up);
      return Make(Op::kCast, {up}, {{"to", static_cast<int64_t>(from)}}, at);
    });
  }

  std::string DoubleTranspose(NodeId id) {
    return Insert(id, "double_transpose", [&](ValueId v, NodeId at) {
      const auto shape = g_.value(v).type.shape;
      if (!shape || shape->size() < 2) return ValueId{};
      std::vector<int64_t> perm(shape->size()), back(shape->size());
      for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
      std::shuffle(perm.begin(), perm.end(), rng_);
      for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
      const ValueId there = Make(Op::kTranspose, {v}, {{"perm", perm}}, at);
      ir::SymShape moved;
      for (int64_t p : perm) moved.push_back((*shape)[static_cast<size_t>(p)]);
      g_.SetType(there, {g_.value(v).type.dtype, moved});
      if (interior_.contains(v)) interior_.insert(there);
      return Make(Op::kTranspose, {there}, {{"perm", back}}, at);
    });
  }

  // Reshape(x) -> Reshape(Reshape(x, [-1])), where no 0 copies a dim.
  std::string SplitReshape(NodeId id) {
    const Node& n = g_.node(id);
    if (n.op != Op::kReshape) return "";
    const ir::Tensor* target = g_.ConstantOf(n.input(1));
    if (target == nullptr) return "";
    for (int64_t i = 0; i < target->size(); ++i) {
      if (target->GetInt(i) == 0) return "";
    }
    const ValueId v = n.input(0);
    const ValueId flat = Make(Op::kReshape, {v, Ints({-1}, id)}, {}, id);
    g_.SetType(flat, {g_.value(v).type.dtype, ir::SymShape{ir::Dim::Unknown()}});
    if (interior_.contains(v)) interior_.insert(flat);
    g_.SetInput(id, 0, flat);
    return "split_reshape " + g_.value(v).name;
  }

  std::string UnsqueezeSqueeze(NodeId id) {
    return Insert(id, "unsqueeze_squeeze", [&](ValueId v, NodeId at) {
      if (!g_.value(v).type.shape) return ValueId{};
      const auto axis = static_cast<int64_t>(rng_() % (g_.value(v).type.shape->size() + 1));
      const ValueId up = Make(Op::kUnsqueeze, {v, Ints({axis}, at)}, {}, at);
      if (interior_.contains(v)) interior_.insert(up);
      return Make(Op::kSqueeze, {up, Ints({axis}, at)}, {}, at);
    });
  }

  // Somewhere between its last producer and its first reader.
  std::string Reorder(NodeId id) {
    std::vector<NodeId> places;
    for (NodeId at = g_.node(id).next; at.valid(); at = g_.node(at).next) {
      places.push_back(at);
      const auto& in = g_.node(at).inputs;
      const bool reads =
          std::any_of(in.begin(), in.end(), [&](ValueId v) { return v.valid() && g_.value(v).producer == id; });
      if (reads || places.size() > 200) break;
    }
    if (places.empty()) return "";
    g_.MoveBefore(id, places[rng_() % places.size()]);
    return "reorder " + g_.node(id).name;
  }

  std::string Rename(NodeId id) {
    const ValueId v = g_.node(id).output();
    if (!v.valid()) return "";
    const std::string old = g_.value(v).name;
    g_.SetName(v, "renamed_" + std::to_string(rng_() % 100000));
    return "rename " + old;
  }

  std::string ExtraUser(NodeId id) {
    if (hidden_) return "";
    const ValueId v = g_.node(id).output();
    if (!v.valid() || interior_.contains(v) || g_.value(v).type.dtype != DType::kF32) return "";
    if (rng_() % 2 == 0) {
      g_.AddOutput(g_.UniqueName("extra" + std::to_string(g_.outputs().size())), v, {});
    } else {
      const ValueId read = Make(Op::kNeg, {v}, {}, g_.node(id).next);
      g_.AddOutput("extra" + std::to_string(g_.outputs().size()), read, {});
    }
    return "extra user of " + g_.value(v).name;
  }

  Graph& g_;
  std::mt19937& rng_;
  std::set<ValueId> interior_;
  bool hidden_ = false;  // a core may be in a branch of an If, and nobody knows its interior
};

}  // namespace

std::vector<std::string> Mutate(Graph& graph, int edits, std::mt19937& rng) {
  Mutator mutator(graph, rng);
  std::vector<std::string> done;
  for (int tries = 0; static_cast<int>(done.size()) < edits && tries < 50 * edits; ++tries) {
    std::string what = mutator.Once();
    if (!what.empty()) done.push_back(std::move(what));
  }
  return done;
}

}  // namespace octavo::passes
