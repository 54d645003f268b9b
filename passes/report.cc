#include "octavo/passes/report.h"

#include <algorithm>
#include <map>
#include <set>

#include "octavo/passes/attention.h"

namespace octavo::passes {

namespace {

void AddOrigin(const Graph& g, NodeId id, std::vector<std::string>& names) {
  if (!id.valid()) return;
  for (const std::string& o : g.node(id).origin) {
    if (!o.starts_with("pass:") && std::find(names.begin(), names.end(), o) == names.end()) names.push_back(o);
  }
  if (names.empty()) names.push_back(g.node(id).name);
}

// Source name -> live nodes that carry it.
class OriginIndex {
 public:
  explicit OriginIndex(const Graph& g) : graph_(g) {
    for (NodeId id : g.NodesInOrder()) {
      for (const std::string& o : g.node(id).origin) index_[o].push_back(id);
      index_[g.node(id).name].push_back(id);
    }
  }
  // First live node of one of the ops that stands for `source`; null: none.
  const Node* Find(const std::string& source, std::initializer_list<Op> ops) const {
    const auto it = index_.find(source);
    if (it == index_.end()) return nullptr;
    for (NodeId id : it->second) {
      if (std::find(ops.begin(), ops.end(), graph_.node(id).op) != ops.end()) return &graph_.node(id);
    }
    return nullptr;
  }

 private:
  const Graph& graph_;
  std::map<std::string, std::vector<NodeId>> index_;
};

// Last rule that made the node.
std::string RuleOf(const Node& n) {
  for (auto it = n.origin.rbegin(); it != n.origin.rend(); ++it) {
    if (it->starts_with("pass:")) return it->substr(5);
  }
  return "";
}

// The deepest refusal of a rule of this kind at one of the candidate's nodes.
const NearMiss* Deepest(const std::vector<NearMiss>& misses, const Candidate& c, std::string_view prefix) {
  const NearMiss* best = nullptr;
  for (const NearMiss& m : misses) {
    if (!m.rule.starts_with(prefix) || std::find(c.nodes.begin(), c.nodes.end(), m.root) == c.nodes.end()) continue;
    if (best == nullptr || m.matched > best->matched) best = &m;
  }
  return best;
}

void Explain(Candidate& c, const std::vector<NearMiss>& misses, const std::vector<std::string>& log,
             std::string_view prefix, std::string_view otherwise) {
  if (const NearMiss* m = Deepest(misses, c, prefix)) {
    c.rule = m->rule;
    c.reason = m->kind + ": " + m->reason;
    return;
  }
  for (const std::string& line : log) {
    if (line.find(c.nodes[0] + " ") != std::string::npos) {
      c.reason = line;
      return;
    }
  }
  c.reason = otherwise;
}

void JudgeAttention(Candidate& c, const OriginIndex& index, const std::vector<NearMiss>& misses,
                    const std::vector<std::string>& log) {
  if (const Node* n = index.Find(c.nodes[0], {Op::kSdpaInt8, Op::kSdpa})) {
    c.status = "fused";
    c.rule = n->op == Op::kSdpaInt8 ? "sdpa_int8" : "sdpa";
    c.reason.clear();
    return;
  }
  Explain(c, misses, log, "sdpa", "no rule came near: the products around this softmax are not MatMuls of rank 4");
}

void JudgeQkv(Candidate& c, const OriginIndex& index, const std::vector<NearMiss>& misses,
              const std::vector<std::string>& log) {
  std::set<const Node*> fused;
  for (const std::string& name : c.nodes) fused.insert(index.Find(name, {Op::kQkvInt8}));
  if (fused.size() == 1 && *fused.begin() != nullptr) {
    c.status = "fused";
    c.rule = "qkv_int8";
    return;
  }
  if (c.nodes.size() == 1) {  // packed: one Linear is the group
    const Node* n = index.Find(c.nodes[0], {Op::kLinearInt8, Op::kMatMul});
    c.status = n != nullptr ? "fused" : "left";
    c.rule = n != nullptr && n->op == Op::kLinearInt8 ? "linear_int8" : "packed";
    return;
  }
  const Node* merged = index.Find(c.nodes[0], {Op::kMatMul});
  if (merged != nullptr && RuleOf(*merged) == "qkv_float") {
    c.status = "fused";
    c.rule = "qkv_float";
    return;
  }
  const bool all_quantized = std::all_of(c.nodes.begin(), c.nodes.end(), [&](const std::string& name) {
    return index.Find(name, {Op::kLinearInt8, Op::kQkvInt8}) != nullptr;
  });
  c.status = all_quantized ? "quantized" : "left";
  Explain(c, misses, log, "linear", "the projections do not read the same quantized activation");
}

void JudgeLinear(Candidate& c, const OriginIndex& index, const std::vector<NearMiss>& misses,
                 const std::vector<std::string>& log) {
  if (const Node* n = index.Find(c.nodes[0], {Op::kLinearInt8, Op::kQkvInt8})) {
    c.status = "quantized";
    c.rule = n->op == Op::kQkvInt8 ? "qkv_int8" : RuleOf(*n);
    return;
  }
  Explain(c, misses, log, "linear", "this recipe leaves Linears in float");
}

}  // namespace

Report TakeInventory(const Graph& graph) {
  Report report;
  for (const AttentionCore& core : FindAttentionCores(graph)) {
    Candidate c{.kind = "attention", .nodes = {}, .status = "left", .rule = "", .reason = ""};
    for (NodeId id : {core.center, core.product_qk, core.product_pv}) AddOrigin(graph, id, c.nodes);
    report.candidates.push_back(std::move(c));
  }
  for (const ProjectionGroup& group : FindProjectionGroups(graph)) {
    Candidate c{.kind = "qkv", .nodes = {}, .status = "left", .rule = "", .reason = ""};
    for (NodeId id : group.linears) c.nodes.push_back(OriginName(graph.node(id)));
    report.candidates.push_back(std::move(c));
  }
  for (NodeId id : graph.NodesInOrder()) {
    if (!IsLinear(graph, graph.node(id))) continue;
    Candidate c{.kind = "linear", .nodes = {}, .status = "left", .rule = "", .reason = ""};
    AddOrigin(graph, id, c.nodes);
    report.candidates.push_back(std::move(c));
  }
  return report;
}

void Judge(const Graph& finished, const std::vector<NearMiss>& misses, const std::vector<std::string>& log, Report& report) {
  const OriginIndex index(finished);
  report.attention = report.qkv = report.linear = {};
  for (Candidate& c : report.candidates) {
    Count& count = c.kind == "attention" ? report.attention : c.kind == "qkv" ? report.qkv : report.linear;
    if (c.kind == "attention") JudgeAttention(c, index, misses, log);
    if (c.kind == "qkv") JudgeQkv(c, index, misses, log);
    if (c.kind == "linear") JudgeLinear(c, index, misses, log);
    ++count.found;
    if (c.status == "fused" || (c.kind == "linear" && c.status == "quantized")) ++count.done;
  }
}

}  // namespace octavo::passes
