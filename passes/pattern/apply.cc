// Rules applied to a graph. Each rule that fired is checked where it fired: new nodes that infer other types than what they replace, or that fail
// in building, are undone, and the sweep is made again without these sites, on the graph as it was.
#include <algorithm>
#include <format>

#include "octavo/passes/guard.h"
#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes::pattern {

namespace {

// Ops that the root of `rule` may be, and which output of theirs: the index of the driver.
struct RootOp {
  ir::Op op;
  size_t output;
};
std::vector<RootOp> RootOps(const Rule& rule) {
  std::vector<RootOp> ops;
  std::vector<Var> work{rule.root};
  while (!work.empty()) {
    const PatternNode& p = rule.at(work.back());
    work.pop_back();
    if (p.what == PatternNode::What::kOp) ops.push_back({p.op, p.output});
    if (p.what == PatternNode::What::kOneOf) work.insert(work.end(), p.inputs.begin(), p.inputs.end());
  }
  return ops;
}

// One rule on one graph.
class Application {
 public:
  Application(const Rule& rule, Graph& graph, PassRun& run)
      : rule_(rule), graph_(graph), run_(run), roots_(RootOps(rule)), told_(Told()) {}

  bool Run() {
    constexpr int kMostSweeps = 8;
    std::string why = "it was undone too often";
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      const size_t undone = undone_.size();
      const bool changed = Sweep();
      if (undone_.size() == undone) {
        if (!changed) return false;
        const Status settled = Settle();
        if (settled) return Tell(), true;
        why = settled.error().message;
        break;
      }
      Restore();
    }
    Restore();
    run_.log.push_back(std::format("{}: undone everywhere: {}", rule_.name, why));
    return false;
  }

 private:
  size_t Told() const { return run_.misses == nullptr ? 0 : run_.misses->size(); }

  void Restore() {
    fired_.clear();
    if (before_) graph_ = *before_;
    if (run_.misses != nullptr) run_.misses->resize(told_);
  }

  void Tell() {
    for (std::string& source : fired_) {
      run_.decisions.push_back({.node = std::move(source),
                                .fate = Decision::Fate::kRewritten,
                                .rule = rule_.name,
                                .reason = {},
                                .culprit = {}});
    }
  }

  void Report(NodeId root, int matched, Kind kind, const std::string& reason) {
    if (run_.misses == nullptr) return;
    run_.misses->push_back({rule_.name, OriginName(graph_.node(root)), matched, std::string(Name(kind)), reason});
  }

  bool Sweep() {
    bool changed = false;
    for (NodeId id : graph_.NodesInOrder()) {
      if (!graph_.IsAlive(id)) continue;
      if (!RootAt(id).valid()) continue;
      const auto known = undone_.find(id);
      if (known != undone_.end()) {
        Report(id, known->second.matched, Kind::kIllegal, known->second.reason);
      } else {
        changed |= At(id);
      }
    }
    return changed;
  }

  // The output that may be the root; invalid: none.
  ValueId RootAt(NodeId id) const {
    const Node& n = graph_.node(id);
    const auto root = std::ranges::find(roots_, n.op, &RootOp::op);
    return root == roots_.end() ? ValueId{} : n.output(root->output);
  }

  // Whether the rule fired there.
  bool At(NodeId id) {
    int matched = 0;
    const size_t first = graph_.node_capacity();
    std::string wrong;
    try {
      const Attempt a = TryMatch(rule_, graph_, RootAt(id), run_.misses != nullptr);
      // One matched node is no near miss, unless all that was looked for matched and the guard said no.
      if (!a.match && (a.depth >= 2 || (a.depth == 1 && a.kind != Kind::kShape))) Report(id, a.depth, a.kind, a.reason);
      if (!a.match) return false;
      matched = static_cast<int>(a.match->nodes().size());
      if (!before_) before_ = graph_;
      std::string source = OriginName(graph_.node(id));
      if (!Build(id, *a.match)) return false;
      wrong = WhyWrong(graph_, first);
      if (wrong.empty()) fired_.push_back(std::move(source));
    } catch (const ir::CheckError& e) {
      wrong = std::format("octavo is at fault, {}; please report it", e.what());
    }
    if (wrong.empty()) return true;
    undone_[id] = {matched, std::format("the fused form does not stand for what it replaces: {}", wrong)};
    return false;
  }

  bool Build(NodeId id, const Match& match) {
    const ValueId root = RootAt(id);
    Rewriter rewriter(graph_, rule_.name);
    rewriter.At(id, match.nodes());
    const ValueId made = rule_.build(rewriter, match);
    if (made.valid()) {
      rewriter.Replace(root, made);
      rewriter.EraseDead(id);
    }
    return rewriter.changed();
  }

  // A rule may give an early value a later producer (a sum that a norm kernel also writes): order is restored, and the next rule
  // needs shapes.
  Status Settle() {
    if (!graph_.SortTopologically()) return ir::Fail("it made a cycle");
    return ir::Inference::Run(graph_).transform([](const auto&) {});
  }

  struct Undone {
    int matched = 0;
    std::string reason;
  };

  const Rule& rule_;
  Graph& graph_;
  PassRun& run_;
  std::vector<RootOp> roots_;
  size_t told_;                  // near misses before this rule
  std::optional<Graph> before_;  // since the first match
  std::map<NodeId, Undone> undone_;
  std::vector<std::string> fired_;  // source names of the roots
};

}  // namespace

Result<bool> ApplyRules(const std::vector<Rule>& rules, Graph& graph, PassRun& run) {
  bool changed = false;
  for (const Rule& rule : rules) changed |= Application(rule, graph, run).Run();
  return changed;
}

}  // namespace octavo::passes::pattern
