// Values of octavo are tensors. A sequence whose elements are known by their number (as of a Split, chunk or unbind that an exporter wrote as
// SplitToSequence and SequenceAt) needs none: who reads an element reads the tensor.
// Before: SequenceAt(SplitToSequence(x, sizes), 1)                  After: the second result of Split(x, sizes)
// Before: SequenceAt(SplitToSequence(x, 4), 1), nobody knows x      After: Slice(x, 4, 8)
// Before: ConcatFromSequence(SequenceInsert(SequenceConstruct(a), b))  After: Concat(a, b)
// Left, to be refused where the model runs: positions that are computed, sequences that go through If, Loop or SequenceMap.
#include <algorithm>
#include <map>
#include <optional>

#include "octavo/ir/onnx/import.h"
#include "octavo/ir/typed.h"

namespace octavo::ir::onnx {

namespace {

constexpr int64_t kMostElements = 1000;  // of one sequence
constexpr int64_t kMostOfAll = 20'000;   // of all of a graph: each may become a node

struct Sequence {
  std::vector<ValueId> elements = {};
  // Instead: pieces of `size` along `axis` of a tensor whose size there is not known; asked for by number alone.
  ValueId whole = {};
  int64_t axis = 0, size = 0;
  bool squeezes = false;
};

class Sequences {
 public:
  explicit Sequences(Graph& g) : g_(g) {}

  // Whether something was replaced.
  bool Resolve() {
    typed_ = Typed(g_);
    const std::vector<NodeId> order = g_.NodesInOrder();
    for (const NodeId id : order) {
      if (g_.node(id).op == Op::kOpaque && g_.node(id).domain.empty()) Visit(id);
    }
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (g_.node(*it).outputs.size() != 1) continue;
      const ValueId v = g_.node(*it).output();
      if (known_.contains(v) || replaced_.contains(v)) EraseUnread(*it);
    }
    for (auto it = made_.rbegin(); it != made_.rend(); ++it) EraseUnread(*it);
    return !replaced_.empty();
  }

 private:
  void EraseUnread(NodeId id) {
    const auto unread = [this](ValueId v) { return g_.value(v).uses.empty() && !g_.IsGraphOutput(v); };
    if (std::ranges::all_of(g_.node(id).outputs, unread)) g_.Erase(id);
  }

  void Visit(NodeId id) {
    const std::string type = g_.node(id).op_type;
    const ValueId first = g_.node(id).input(0);
    if (type == "SequenceEmpty") return Know(id, {});
    if (type == "SequenceConstruct") return Know(id, {.elements = g_.node(id).inputs});
    if (type == "SplitToSequence") return Split(id);
    if (type == "Optional" && first.valid()) {
      if (const auto it = known_.find(first); it != known_.end()) return Know(id, Sequence(it->second));
      return Replace(id, first);
    }
    const auto it = known_.find(first);
    if (it == known_.end()) return;
    const Sequence s = it->second;
    if (type == "SequenceAt") return At(id, s);
    if (s.whole.valid()) return;
    if (type == "SequenceLength") {
      return Replace(id, g_.AddConstant(Tensor::ScalarS64(static_cast<int64_t>(s.elements.size())), {}, id));
    }
    if (type == "SequenceInsert" || type == "SequenceErase") return Change(id, s, type == "SequenceInsert");
    if (type == "ConcatFromSequence") return Join(id, s);
  }

  bool MayAdd(size_t elements) {
    left_ -= static_cast<int64_t>(elements) + 1;
    return left_ >= 0 && static_cast<int64_t>(elements) <= kMostElements;
  }
  void Know(NodeId id, Sequence s) {
    if (MayAdd(s.elements.size())) known_.emplace(g_.node(id).output(), std::move(s));
  }

  // The node's value is `to` from here on, under its old name where that is new.
  void Replace(NodeId id, ValueId to) {
    const ValueId from = g_.node(id).output();
    if (!g_.value(to).type.shape) {
      Type declared = g_.value(from).type;
      if (declared.dtype == DType::kUndefined) declared.dtype = g_.value(to).type.dtype;
      g_.SetType(to, declared);
    }
    g_.ReplaceAllUses(from, to);
    replaced_.insert({from, to});
  }

  ValueId Make(NodeId before, Op op, std::vector<ValueId> inputs, Attrs attrs) {
    return g_.node(MakeN(before, op, std::move(inputs), 1, std::move(attrs))).output();
  }
  NodeId MakeN(NodeId before, Op op, std::vector<ValueId> inputs, size_t outputs, Attrs attrs) {
    const NodeId made = g_.AddNode(op, std::move(inputs), outputs, std::move(attrs), g_.node(before).name, before);
    g_.SetOrigin(made, g_.node(before).origin);
    made_.push_back(made);
    return made;
  }
  ValueId Ints(NodeId before, std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    const ValueId made = g_.AddConstant(Tensor::S64({n}, std::move(v)), {}, before);
    made_.push_back(g_.value(made).producer);
    return made;
  }

  // A whole number that stands in the file.
  std::optional<int64_t> Number(ValueId v) const {
    const Tensor* t = g_.ConstantOf(v);
    if (t == nullptr || t->size() != 1 || (t->dtype() != DType::kS64 && t->dtype() != DType::kS32)) return {};
    return static_cast<int64_t>(t->GetDouble(0));
  }
  // Where a position among `count` is; one may stand behind the last.
  std::optional<int64_t> Position(ValueId v, int64_t count, int64_t fallback, bool behind) const {
    const auto given = v.valid() ? Number(v) : std::optional(fallback);
    if (!given) return {};
    const int64_t at = *given < 0 ? *given + count : *given;
    return at < 0 || at > count || (at == count && !behind) ? std::nullopt : std::optional(at);
  }

  void Split(NodeId id) {
    const ValueId x = g_.node(id).input(0), split = g_.node(id).input(1);
    if (!x.valid()) return;
    const auto& shape = (typed_ && typed_->IsAlive(x) ? *typed_ : g_).value(x).type.shape;  // or it was made since
    int64_t axis = g_.node(id).attrs.Int("axis", 0);
    const bool squeezes = !split.valid() && g_.node(id).attrs.Int("keepdims", 1) == 0;
    if (axis < 0 && shape) axis += static_cast<int64_t>(shape->size());
    const Tensor* given = g_.ConstantOf(split);
    if (given != nullptr && given->rank() == 1) {
      std::vector<int64_t> sizes;
      for (int64_t i = 0; i < std::min(given->size(), kMostElements + 1); ++i)
        sizes.push_back(static_cast<int64_t>(given->GetDouble(i)));
      return Pieces(id, x, axis, std::move(sizes), false);
    }
    const auto size = split.valid() ? Number(split) : std::optional(int64_t{1});
    if (!size || *size <= 0) return;
    if (!shape || axis < 0 || axis >= static_cast<int64_t>(shape->size()) ||
        !(*shape)[static_cast<size_t>(axis)].is_number())
      return Know(id, {.whole = x, .axis = axis, .size = *size, .squeezes = squeezes});
    const int64_t whole = (*shape)[static_cast<size_t>(axis)].number();
    if (whole / *size >= kMostElements) return;
    std::vector<int64_t> sizes(static_cast<size_t>(whole / *size), *size);
    if (whole % *size != 0) sizes.push_back(whole % *size);
    Pieces(id, x, axis, std::move(sizes), squeezes);
  }

  void Pieces(NodeId id, ValueId x, int64_t axis, std::vector<int64_t> sizes, bool squeezes) {
    if (!MayAdd(sizes.size())) return;
    Sequence s;
    if (!sizes.empty()) {
      const size_t count = sizes.size();
      const NodeId made = MakeN(id, Op::kSplit, {x, Ints(id, std::move(sizes))}, count, {{"axis", axis}});
      s.elements = g_.node(made).outputs;
    }
    if (squeezes) {
      for (ValueId& v : s.elements) v = Make(id, Op::kSqueeze, {v, Ints(id, {axis})}, {});
    }
    Know(id, std::move(s));
  }

  void At(NodeId id, const Sequence& s) {
    const ValueId position = g_.node(id).input(1);
    if (!s.whole.valid()) {
      const auto at = Position(position, static_cast<int64_t>(s.elements.size()), 0, false);
      if (at && position.valid()) Replace(id, s.elements[static_cast<size_t>(*at)]);
      return;
    }
    const auto at = position.valid() ? Number(position) : std::nullopt;
    if (!at || *at < 0 || *at > (int64_t{1} << 40) / s.size) return;
    ValueId piece = Make(id, Op::kSlice, {s.whole, Ints(id, {*at * s.size}), Ints(id, {(*at + 1) * s.size}), Ints(id, {s.axis})}, {});
    if (s.squeezes) piece = Make(id, Op::kSqueeze, {piece, Ints(id, {s.axis})}, {});
    Replace(id, piece);
  }

  void Change(NodeId id, Sequence s, bool inserts) {
    const auto count = static_cast<int64_t>(s.elements.size());
    const ValueId position = g_.node(id).input(inserts ? 2 : 1);
    const auto at = Position(position, count, inserts ? count : count - 1, inserts);
    if (!at || (inserts && !g_.node(id).input(1).valid())) return;
    if (inserts) {
      s.elements.insert(s.elements.begin() + *at, g_.node(id).input(1));
    } else {
      s.elements.erase(s.elements.begin() + *at);
    }
    Know(id, std::move(s));
  }

  void Join(NodeId id, const Sequence& s) {
    if (s.elements.empty() || !g_.node(id).attrs.Has("axis") || !MayAdd(s.elements.size())) return;
    const int64_t axis = g_.node(id).attrs.Int("axis", 0);
    std::vector<ValueId> parts = s.elements;
    if (g_.node(id).attrs.Int("new_axis", 0) != 0) {
      for (ValueId& v : parts) v = Make(id, Op::kUnsqueeze, {v, Ints(id, {axis})}, {});
    }
    Replace(id, Make(id, Op::kConcat, std::move(parts), {{"axis", axis}}));
  }

  Graph& g_;
  std::optional<Graph> typed_;
  std::map<ValueId, Sequence> known_;
  std::map<ValueId, ValueId> replaced_;
  std::vector<NodeId> made_;
  int64_t left_ = kMostOfAll;
};

bool HasSequences(const Graph& g) {
  for (NodeId id = g.first(); id.valid(); id = g.node(id).next) {
    const Node& n = g.node(id);
    if (n.op == Op::kOpaque && n.domain.empty() &&
        (n.op_type.starts_with("Sequence") || n.op_type == "SplitToSequence" || n.op_type == "Optional"))
      return true;
  }
  return false;
}

}  // namespace

void ResolveSequences(Graph& g) {
  // Each turn knows the shapes of what the one before it made.
  constexpr int kTurns = 8;
  for (int turn = 0; turn < kTurns && HasSequences(g) && Sequences(g).Resolve(); ++turn) {
  }
}

}  // namespace octavo::ir::onnx
