#include "octavo/ir/verify.h"

#include <algorithm>
#include <format>
#include <set>

#include "octavo/ir/graph.h"
#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// Ops of any number of inputs none of which may be absent.
bool NeedsAllInputs(Op op) {
  return op == Op::kConcat || op == Op::kMax || op == Op::kMin || op == Op::kMean || op == Op::kSum ||
         op == Op::kEinsum;
}

class Verifier {
 public:
  Verifier(const Graph& graph, size_t nesting) : g_(graph), nesting_(nesting) {}

  std::vector<Violation> Run() {
    CheckList();
    CheckValues();
    for (size_t i = 0; i < order_.size(); ++i) CheckNode(order_[i]);
    CheckUses();
    CheckOutputs();
    // Inference walks the graph, and the graphs within: it needs a sound one.
    if (violations_.empty() && nesting_ == 0) CheckTypes();
    return std::move(violations_);
  }

 private:
  template <typename... Args>
  void Report(std::string culprit, std::format_string<Args...> fmt, Args&&... args) {
    violations_.push_back({std::move(culprit), std::format(fmt, std::forward<Args>(args)...)});
  }

  std::string Label(NodeId id) const {
    const Node& n = g_.node(id);
    if (!n.name.empty()) return n.name;
    for (const ValueId v : n.outputs) {
      if (g_.IsAlive(v)) return g_.value(v).name;
    }
    return std::format("{} #{}", n.op == Op::kOpaque ? n.op_type : InfoOf(n.op).name, id.index);
  }

  // Walks the list of nodes; a broken list ends the walk.
  void CheckList() {
    rank_.assign(g_.node_capacity(), kNowhere);
    NodeId previous;
    for (NodeId id = g_.first(); id.valid(); id = g_.node(id).next) {
      if (!g_.IsAlive(id)) return Report("", "the list of nodes leads to the dead node {}", id.index);
      if (rank_[id.index] != kNowhere) return Report(Label(id), "the list of nodes comes to this node twice");
      if (g_.node(id).prev != previous) Report(Label(id), "its link to the node before it is wrong");
      rank_[id.index] = order_.size();
      order_.push_back(id);
      previous = id;
    }
    if (previous != g_.last()) Report("", "the list of nodes does not end at its last node");
    if (order_.size() != g_.node_count()) {
      Report("", "the list holds {} nodes, but {} are alive", order_.size(), g_.node_count());
    }
  }

  void CheckValues() {
    std::set<std::string_view> names;
    std::set<ValueId> inputs;
    for (const ValueId v : g_.inputs()) {
      if (!g_.IsAlive(v)) {
        Report("", "a graph input is the dead value {}", v.index);
      } else if (!inputs.insert(v).second) {
        Report(g_.value(v).name, "it is twice among the graph's inputs");
      }
    }
    for (uint32_t i = 0; i < g_.value_capacity(); ++i) {
      const ValueId id{i};
      if (!g_.IsAlive(id)) continue;
      const Value& v = g_.value(id);
      if (!names.insert(v.name).second) Report(v.name, "two values have this name");
      if (g_.FindValue(v.name) != id) Report(v.name, "the index of names does not lead to it");
      if (!v.producer.valid()) {
        if (!inputs.contains(id)) Report(v.name, "nothing produces it, and it is no graph input");
      } else if (inputs.contains(id)) {
        Report(v.name, "it is a graph input, but a node produces it");
      } else if (!g_.IsAlive(v.producer)) {
        Report(v.name, "its producer is the dead node {}", v.producer.index);
      } else if (g_.node(v.producer).output(v.output_index) != id) {
        Report(v.name, "its producer does not have it as output {}", v.output_index);
      }
    }
  }

  void CheckNode(NodeId id) {
    const Node& n = g_.node(id);
    CheckArity(id, n);
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      const ValueId v = n.inputs[slot];
      if (!v.valid()) continue;
      if (!g_.IsAlive(v)) {
        Report(Label(id), "input {} is the dead value {}", slot, v.index);
        continue;
      }
      const NodeId producer = g_.value(v).producer;
      if (g_.IsAlive(producer) && rank_[producer.index] >= rank_[id.index]) {
        Report(Label(id), "input {} ('{}') is produced by '{}', which does not stand before it", slot, g_.value(v).name,
               Label(producer));
      }
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = n.outputs[i];
      if (!v.valid()) continue;
      if (!g_.IsAlive(v)) {
        Report(Label(id), "output {} is the dead value {}", i, v.index);
      } else if (g_.value(v).producer != id) {
        Report(Label(id), "output {} ('{}') names another producer", i, g_.value(v).name);
      }
    }
    if (n.op == Op::kConstant) CheckConstant(id, n);
    CheckSubgraphs(id, n);
  }

  void CheckArity(NodeId id, const Node& n) {
    const OpInfo& info = InfoOf(n.op);
    const auto inputs = static_cast<int64_t>(n.inputs.size());
    const auto outputs = static_cast<int64_t>(n.outputs.size());
    if (inputs < info.min_inputs || (info.max_inputs >= 0 && inputs > info.max_inputs)) {
      Report(Label(id), "{} has {} inputs; it takes {}", info.name, inputs, Range(info.min_inputs, info.max_inputs));
    }
    if (outputs < info.min_outputs || (info.max_outputs >= 0 && outputs > info.max_outputs)) {
      Report(Label(id), "{} has {} outputs; it gives {}", info.name, outputs,
             Range(info.min_outputs, info.max_outputs));
    }
    if (n.op == Op::kOpaque && n.op_type.empty()) Report(Label(id), "an opaque node has no op type");
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      if (!n.inputs[slot].valid() && (NeedsAllInputs(n.op) || !MayBeAbsent(n.op, slot))) {
        Report(Label(id), "input {} of {} is absent, but it is not optional", slot, info.name);
      }
    }
  }

  static std::string Range(int low, int high) {
    if (high < 0) return std::format("{} or more", low);
    return low == high ? std::format("{}", low) : std::format("{} to {}", low, high);
  }

  void CheckConstant(NodeId id, const Node& n) {
    const Attr* attr = n.attrs.Find("value");
    const Tensor* t = attr == nullptr ? nullptr : std::get_if<Tensor>(attr);
    if (t == nullptr || !t->defined()) return Report(Label(id), "a Constant needs a tensor attribute 'value'");
    if (!g_.IsAlive(n.output())) return;
    const Type& type = g_.value(n.output()).type;
    const bool same_shape = type.shape && std::ranges::equal(*type.shape, t->shape(), [](const Dim& d, int64_t size) {
                              return d.is_number() && d.number() == size;
                            });
    if (type.dtype != t->dtype() || !same_shape) {
      Report(Label(id), "the constant holds {}{}, but its type is {}", quant::Name(t->dtype()),
             octavo::ir::ToString(t->shape()), ToString(type));
    }
  }

  void CheckSubgraphs(NodeId id, const Node& n) {
    for (const auto& [name, attr] : n.attrs.entries()) {
      const auto* body = std::get_if<GraphRef>(&attr);
      if (body == nullptr) continue;
      if (*body == nullptr) {
        Report(Label(id), "its graph '{}' is missing", name);
        continue;
      }
      if (nesting_ >= kMaxNesting) {
        Report(Label(id), "graphs are nested deeper than {}", kMaxNesting);
        continue;
      }
      for (const Violation& v : Verifier(**body, nesting_ + 1).Run()) {
        Report(Label(id), "in its graph '{}': {}{}", name, v.node.empty() ? "" : "'" + v.node + "': ", v.message);
      }
      CheckCaptures(id, n, name, **body);
    }
  }

  // The last inputs of node and subgraph are the captures; how many others a subgraph has depends on the op.
  void CheckCaptures(NodeId id, const Node& n, std::string_view name, const Graph& body) {
    if (n.op != Op::kIf && n.op != Op::kLoop && n.op != Op::kScan) return;
    const auto own = static_cast<int64_t>(n.op == Op::kIf ? 1 : n.op == Op::kLoop ? 2 : 0);
    const auto inputs = static_cast<int64_t>(n.inputs.size());
    const int64_t captures = n.attrs.Int("octavo_captures", 0);
    if (captures < 0 || captures + own > inputs || (n.op == Op::kIf && captures + own != inputs)) {
      return Report(Label(id), "octavo_captures is {}, but the node has {} inputs", captures, inputs);
    }
    const int64_t expected = n.op == Op::kIf ? captures : inputs;
    if (static_cast<int64_t>(body.inputs().size()) != expected) {
      Report(Label(id), "its graph '{}' has {} inputs, but the node gives it {}", name, body.inputs().size(), expected);
    }
  }

  // Every use is in the list of its value, once, and every entry of a list is a use.
  void CheckUses() {
    std::vector<std::vector<Use>> found(g_.value_capacity());
    for (const NodeId id : order_) {
      const Node& n = g_.node(id);
      for (uint32_t slot = 0; slot < n.inputs.size(); ++slot) {
        if (g_.IsAlive(n.inputs[slot])) found[n.inputs[slot].index].push_back({id, slot});
      }
    }
    const auto before = [](const Use& a, const Use& b) { return a.node != b.node ? a.node < b.node : a.slot < b.slot; };
    for (uint32_t i = 0; i < g_.value_capacity(); ++i) {
      if (!g_.IsAlive(ValueId{i})) continue;
      const Value& v = g_.value(ValueId{i});
      std::vector<Use> listed = v.uses;
      std::ranges::sort(listed, before);
      std::ranges::sort(found[i], before);
      if (listed != found[i]) {
        Report(v.name, "its use list has {} entries that do not agree with its {} uses", listed.size(),
               found[i].size());
      }
    }
  }

  void CheckOutputs() {
    std::set<std::string_view> names;
    for (const GraphOutput& o : g_.outputs()) {
      if (!names.insert(o.name).second) Report(o.name, "two graph outputs have this name");
      if (!o.value.valid()) {
        Report(o.name, "the graph output is not bound to a value");
      } else if (!g_.IsAlive(o.value)) {
        Report(o.name, "the graph output is bound to the dead value {}", o.value.index);
      }
    }
  }

  void CheckTypes() {
    Graph copy = g_;
    if (const auto inference = Inference::Run(copy); !inference) {
      Report("", "types contradict each other: {}", inference.error().message);
    }
  }

  static constexpr size_t kNowhere = SIZE_MAX;
  const Graph& g_;
  size_t nesting_;
  std::vector<NodeId> order_;
  std::vector<size_t> rank_;  // place in the order, by node index
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> Verify(const Graph& graph) { return Verifier(graph, 0).Run(); }

Status VerifyStatus(const Graph& graph) {
  const std::vector<Violation> violations = Verify(graph);
  if (violations.empty()) return {};
  constexpr size_t kShown = 3;
  std::string text = "the graph is not legal: ";
  for (size_t i = 0; i < std::min(kShown, violations.size()); ++i) {
    const Violation& v = violations[i];
    if (i > 0) text += "; ";
    text += v.node.empty() ? v.message : std::format("'{}': {}", v.node, v.message);
  }
  if (violations.size() > kShown) text += std::format("; and {} more", violations.size() - kShown);
  return std::unexpected(Error{std::move(text)});
}

}  // namespace octavo::ir
