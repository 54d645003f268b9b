#include "octavo/passes/report.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <map>
#include <ranges>
#include <set>

#include "octavo/ir/beside.h"
#include "octavo/ir/functions.h"
#include "octavo/ir/vendor/lower.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/diagnose.h"
#include "octavo/passes/experts.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes {

namespace {

void AddOrigin(const Graph& g, NodeId id, std::vector<std::string>& names) {
  if (!id.valid()) return;
  const size_t before = names.size();
  const auto add = [&names](const std::string& o) {
    if (std::find(names.begin(), names.end(), o) == names.end()) names.push_back(o);
  };
  for (const std::string& o : g.node(id).origin) {
    if (!o.starts_with("pass:")) add(o);
  }
  if (names.size() == before) add(g.node(id).name);  // a graph built by hand
}

// Source name -> live nodes that carry it.
class OriginIndex {
 public:
  explicit OriginIndex(const Graph& g) : graph_(g) {
    for (NodeId id : g.NodesInOrder()) {
      for (const std::string& o : g.node(id).origin) index_[o].push_back(id);
      if (OriginName(g.node(id)) == g.node(id).name) index_[g.node(id).name].push_back(id);  // a graph built by hand
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

  const Graph& graph() const { return graph_; }

 private:
  const Graph& graph_;
  std::map<std::string, std::vector<NodeId>> index_;
};

// Empty, or what a file that quantizes scores has lost by it. Static quantization by ONNX Runtime 1.31 takes the lowest float of
// a mask into the range, so that all visible keys share one code.
std::string CoarseScores(const Graph& g, const Node& attention) {
  constexpr double kCoarse = 1.0;  // neighbouring codes then differ by a factor of e in weight
  constexpr const char* kWayOut = "leave the scores in float, or quantize the float model with octavo";
  const double divisor = attention.attrs.Float("divisor", 0.0f);
  const double product_step = attention.attrs.Float("product_step", 0.0f);  // of codes; 0: their scale
  const double scaling = attention.attrs.Float("scale", 1.0f) / (divisor == 0 ? 1 : divisor);
  const struct {
    const char* what;
    size_t slot;
    double factor;  // from these codes to what Softmax reads
  } places[] = {{"products", ir::kSdpaProductCodes, (product_step == 0 ? 1 : product_step) * scaling},
                {"scores", ir::kSdpaScaledCodes, 1},
                {"masked scores", ir::kSdpaMaskedCodes, 1}};
  for (const auto& [what, slot, factor] : places) {
    const ir::Tensor* scale = g.ConstantOf(attention.input(slot));
    const double step = scale == nullptr ? 0 : std::fabs(scale->GetDouble(0) * factor);
    if (step < kCoarse) continue;
    return std::format("the file quantizes the {} in steps of {:.3g}, so keys get equal weights{}; {}", what, step,
                       std::isfinite(step) ? "" : " or NaN, for which every runtime has another code", kWayOut);
  }
  return {};
}

// Empty, or that a run compares what the graph does not tell: the batches of q, k and v.
std::string ComparedAtRunTime(const Graph& g, const Node& attention) {
  const auto batch = [&](size_t slot) {
    const auto& shape = g.value(attention.input(slot)).type.shape;
    return shape && !shape->empty() ? shape->front() : ir::Dim();
  };
  if (ProvablyEqual(batch(0), batch(1)) && ProvablyEqual(batch(0), batch(2))) return {};
  return std::format(
      "with a check at run time: q, k and v have the batches {}, {} and {}, and a run in which they differ takes the "
      "single ops; name the dims of the inputs alike if they are always the same",
      batch(0).ToString(), batch(1).ToString(), batch(2).ToString());
}

bool MadeBy(const Node& n, std::string_view pass) {
  return std::ranges::any_of(n.origin,
                             [&](const std::string& o) { return o.starts_with("pass:") && o.substr(5) == pass; });
}

// Last rule that made the node.
std::string RuleOf(const Node& n) {
  for (const std::string& o : n.origin | std::views::reverse) {
    if (o.starts_with("pass:")) return o.substr(5);
  }
  return "";
}

// Near misses by the source name of their root: a model has as many of them as candidates.
class Misses {
 public:
  explicit Misses(const std::vector<NearMiss>* misses) {
    if (misses == nullptr) return;
    for (const NearMiss& m : *misses) by_root_[m.root].push_back(&m);
  }
  // The deepest refusal of a rule of this kind at one of the candidate's nodes.
  const NearMiss* Deepest(const Candidate& c, std::string_view prefix) const {
    const NearMiss* best = nullptr;
    for (const std::string& name : c.nodes) {
      const auto it = by_root_.find(name);
      if (it == by_root_.end()) continue;
      for (const NearMiss* m : it->second) {
        if (m->rule.starts_with(prefix) && (best == nullptr || m->matched > best->matched)) best = m;
      }
    }
    return best;
  }

 private:
  std::map<std::string, std::vector<const NearMiss*>> by_root_;
};

// What passes decided of nodes, by source name: a large model has thousands.
class Decisions {
 public:
  explicit Decisions(const std::vector<Decision>& all) {
    for (const Decision& d : all) {
      if (d.fate == Decision::Fate::kKept) kept_.insert(d.node);
      if (d.fate == Decision::Fate::kLeft) left_[d.node] = &d;  // the last pass has the last word
    }
  }
  bool Kept(const Candidate& c) const {
    return std::ranges::any_of(c.nodes, [this](const std::string& name) { return kept_.contains(name); });
  }
  const Decision* Left(const std::string& node) const {
    const auto it = left_.find(node);
    return it == left_.end() ? nullptr : it->second;
  }

 private:
  std::set<std::string_view> kept_;
  std::map<std::string_view, const Decision*> left_;
};

constexpr const char* kAsAsked = "stays float, as asked";

// What passes told.
struct Told {
  const Misses& misses;
  const Decisions& decisions;
};

constexpr std::string_view kNoRule = "-";  // a prefix that no rule has

// Told by who asked for it, else by the rule that came nearest, else by what TakeInventory saw in the graph, else by the pass that left it.
void Explain(Candidate& c, const Told& told, std::string_view prefix, std::string_view otherwise) {
  if (told.decisions.Kept(c)) {
    c.reason = kAsAsked;
    return;
  }
  // Where a pattern ended says less than what the inventory saw in its way.
  const NearMiss* m = told.misses.Deepest(c, prefix);
  if (m != nullptr && !(c.kind == "attention" && !c.reason.empty() && m->reason.contains("' should be "))) {
    c.rule = m->rule;
    c.reason = m->kind + ": " + m->reason;
    return;
  }
  if (!c.reason.empty()) return;
  const Decision* left = told.decisions.Left(c.nodes[0]);
  c.reason = left != nullptr ? left->reason : otherwise;
}

// Where the weights are not float32, which no recipe quantizes, or codes; else `otherwise`.
std::string UnlessOtherFloat(const OriginIndex& index, const std::string& name, std::string otherwise) {
  const Node* n = index.Find(name, {Op::kMatMul});
  const Node* from = n == nullptr ? nullptr : index.graph().Producer(n->inputs[1]);
  if (from != nullptr && from->op == Op::kDequantizeLinear)
    return "its weights are quantized already: recipe 'quantized' fuses them";
  const ir::Tensor* w = n == nullptr ? nullptr : index.graph().ConstantOf(n->inputs[1]);
  if (w == nullptr || w->dtype() == ir::DType::kF32 || !quant::IsFloat(w->dtype())) return otherwise;
  return "its weights are " + std::string(quant::Name(w->dtype())) +
         ", and float32 alone is quantized: store the model in fp32 first";
}

void JudgeAttention(Candidate& c, const OriginIndex& index, const Told& told) {
  if (const Node* n = index.Find(c.nodes[0], {Op::kQuantizedSdpa, Op::kSdpa})) {
    c.status = "fused";
    c.rule = n->op == Op::kQuantizedSdpa ? "quantized_sdpa" : "sdpa";
    c.reason = n->op == Op::kQuantizedSdpa ? CoarseScores(index.graph(), *n) : told.decisions.Kept(c) ? kAsAsked : "";
    if (c.reason.empty()) c.reason = ComparedAtRunTime(index.graph(), *n);
    return;
  }
  Explain(c, told, "sdpa",
          "no attention rule came near: what stands around it is none of the forms in passes/canonical/README.md");
}

// Empty, or what keeps products of codes apart: the first with an activation in its epilogue. Codes of x are made once and have the name of one product, which then leads
// to the others too: names of its own count first.
std::string HasActivation(const Candidate& c, const OriginIndex& index) {
  for (const bool shared : {false, true}) {
    for (const std::string& name : c.nodes) {
      if (!shared && index.Find(name, {Op::kQuantizedQkv}) != nullptr) continue;
      const Node* n = index.Find(name, {Op::kQuantizedLinear});
      const std::string activation = n == nullptr ? "none" : n->attrs.Str("activation", "none");
      if (activation == "none") continue;
      return std::format(
          "'{}' has the activation {} in it, which no merged product has; the others are one where they can", name,
          activation);
    }
  }
  return {};
}

// Products that stay apart in the file, and that the runtime runs as one step.
bool JudgeOneStep(Candidate& c, const OriginIndex& index) {
  std::vector<NodeId> products;
  for (const std::string& name : c.nodes) {
    const Node* n = index.Find(name, {Op::kQuantizedLinear, Op::kLinearBlocked});
    if (n == nullptr) return false;
    products.push_back(index.graph().value(n->output()).producer);
  }
  if (std::set(products.begin(), products.end()).size() != c.nodes.size() || !ir::AreOneStep(index.graph(), products))
    return false;
  c.status = "fused";
  c.rule = "one_step";
  c.reason = "one step at run time, apart in the file";
  return true;
}

void JudgeQkv(Candidate& c, const OriginIndex& index, const Told& told) {
  // No group to begin with: `nodes` names the core, and what two of its projections became may name it too.
  if (c.kind == "qkv" && c.nodes.size() == 1 && !c.reason.empty()) return;
  std::set<const Node*> fused;
  for (const std::string& name : c.nodes) fused.insert(index.Find(name, {Op::kQuantizedQkv}));
  const bool one = fused.size() == 1 && *fused.begin() != nullptr;
  if (one && (*fused.begin())->outputs.size() >= c.nodes.size()) {  // fewer: of two of them, found by a shared name
    c.status = "fused";
    c.rule = "quantized_qkv";
    c.reason.clear();
    return;
  }
  if (c.nodes.size() == 1) {  // packed: one Linear is the group
    const Node* n = index.Find(c.nodes[0], {Op::kQuantizedLinear, Op::kLinearBlocked, Op::kMatMul});
    c.status = n != nullptr ? "fused" : "left";
    c.rule = n == nullptr || n->op == Op::kMatMul ? "packed"
             : n->op == Op::kQuantizedLinear      ? "quantized_linear"
                                                  : "linear_blocked";
    if (n == nullptr) Explain(c, told, "linear", "the packed projection is no product of this pipeline's ops");
    return;
  }
  const Node* merged = index.Find(c.nodes[0], {Op::kMatMul});
  const auto is_in_it = [&](const std::string& name) { return index.Find(name, {Op::kMatMul}) == merged; };
  if (merged != nullptr && MadeBy(*merged, "qkv_float") && std::ranges::all_of(c.nodes, is_in_it)) {
    c.status = "fused";
    c.rule = "qkv_float";
    c.reason.clear();
    return;
  }
  if (JudgeOneStep(c, index)) return;
  if (c.kind == "qkv" && !c.reason.empty()) return;  // products whose operator says why they are left
  const bool all_quantized = std::all_of(c.nodes.begin(), c.nodes.end(), [&](const std::string& name) {
    return index.Find(name, {Op::kQuantizedLinear, Op::kQuantizedQkv, Op::kLinearBlocked}) != nullptr;
  });
  c.status = all_quantized ? "quantized" : "left";
  if (const Decision* left = told.decisions.Left(c.nodes[0]); left != nullptr && left->rule == "qkv_float") {
    c.rule = left->rule;
    c.reason = left->reason;
    return;
  }
  c.reason = HasActivation(c, index);
  if (c.reason.empty())
    Explain(c, told, "linear", UnlessOtherFloat(index, c.nodes[0], "no pass of this pipeline merges projections"));
}

void JudgeLinear(Candidate& c, const OriginIndex& index, const Told& told) {
  if (const Node* n = index.Find(c.nodes[0], {Op::kQuantizedLinear, Op::kQuantizedQkv, Op::kLinearBlocked})) {
    c.status = "quantized";
    c.rule = n->op == Op::kQuantizedQkv ? "quantized_qkv" : RuleOf(*n);
    return;
  }
  // A weight in float is none that a rule for codes missed: what the graph and the passes say of it counts.
  const Node* n = index.Find(c.nodes[0], {Op::kMatMul});
  const bool plain = n != nullptr && index.graph().ConstantOf(n->input(1)) != nullptr;
  Explain(c, told, plain ? kNoRule : "linear",
          UnlessOtherFloat(index, c.nodes[0], "this recipe leaves Linears in float"));
}

// A convolution that the pass conv_linears has made a Linear.
bool IsMadeLinear(const Candidate& c, const OriginIndex& index) {
  const Node* n = c.kind != "product" ? nullptr : index.Find(c.nodes[0], {Op::kQuantizedLinear, Op::kMatMul});
  return n != nullptr && MadeBy(*n, "conv_linears");
}

// Of a mixture of experts: the Gather that takes their matrices, then the product.
void JudgeExperts(Candidate& c, const OriginIndex& index, const Told& told) {
  if (const Node* columns = index.Find(c.nodes[0], {Op::kLinearBlocked, Op::kQuantizedLinear})) {
    c.status = "quantized";
    c.rule = RuleOf(*columns);
    c.reason.clear();
    return;
  }
  const Node* n = index.Find(c.nodes[0], {Op::kGather, Op::kGatherND});
  const ir::Tensor* w = n == nullptr ? nullptr : index.graph().ConstantOf(n->input(0));
  if (w != nullptr && quant::IsCode8(w->dtype())) {
    c.status = "quantized";
    c.rule = RuleOf(*n);
    c.reason.clear();
    return;
  }
  const bool other = w != nullptr && w->dtype() != ir::DType::kF32;
  Explain(c, told, kNoRule,
          other ? "its weights are no float32, which alone is quantized: store the model in fp32 first"
                : "this recipe leaves experts in float, or their matrices are too small to pay");
}

void AddExperts(const Graph& graph, Report& report) {
  for (NodeId id : graph.NodesInOrder()) {
    const std::optional<Experts> experts = ExpertsAt(graph, id);
    if (!experts) continue;
    Candidate c{.kind = "experts", .nodes = {}, .status = "left", .rule = "", .reason = ""};
    for (NodeId node : {experts->gather, experts->product}) AddOrigin(graph, node, c.nodes);
    report.candidates.push_back(std::move(c));
  }
}

void AddOtherProducts(const Graph& graph, Report& report) {
  for (OtherProduct& product : OtherProducts(graph)) {
    Candidate c{.kind = "product", .nodes = {}, .status = "left", .rule = "", .reason = std::move(product.reason)};
    AddOrigin(graph, product.node, c.nodes);
    report.candidates.push_back(std::move(c));
  }
}

// Groups of projections; cores whose projections form none, with the reason; Linears that share an input otherwise.
void AddProjections(const Graph& graph, Report& report) {
  std::set<NodeId> grouped, whole, crossing;  // cores whose operands are one group, or k and v alone
  std::set<NodeId> projections;
  for (const ProjectionGroup& group : FindProjectionGroups(graph)) {
    Candidate c{.kind = group.kind, .nodes = {}, .status = "left", .rule = "", .reason = ""};
    for (NodeId id : group.linears) c.nodes.push_back(OriginName(graph.node(id)));
    grouped.insert(group.linears.begin(), group.linears.end());
    if (group.kind == "qkv") whole.insert(group.core.center);
    if (group.kind == "kv") crossing.insert(group.core.center);
    report.candidates.push_back(std::move(c));
  }
  for (const AttentionCore& core : FindAttentionCores(graph)) {
    for (ValueId operand : {core.q, core.k, core.v}) {
      const std::vector<NodeId> linears = LinearsBehind(graph, operand);
      projections.insert(linears.begin(), linears.end());
    }
    std::string reason = whole.contains(core.center) ? "" : WhyNoGroup(graph, core);
    // Cross-attention has q from elsewhere: nothing to explain but a projection that no pass can take.
    if (reason.empty() || (crossing.contains(core.center) && !reason.starts_with("q's projection"))) continue;
    report.candidates.push_back({.kind = "qkv",
                                 .nodes = {OriginName(graph.node(core.center))},
                                 .status = "left",
                                 .rule = "",
                                 .reason = std::move(reason)});
  }
  std::map<ValueId, std::vector<NodeId>> readers;
  for (NodeId id : graph.NodesInOrder()) {
    if (IsLinear(graph, graph.node(id)) && !grouped.contains(id)) readers[graph.node(id).inputs[0]].push_back(id);
  }
  for (const auto& [x, linears] : readers) {
    if (linears.size() < 2) continue;
    Candidate c{.kind = "shared", .nodes = {}, .status = "left", .rule = "", .reason = ""};
    for (NodeId id : linears) c.nodes.push_back(OriginName(graph.node(id)));
    const bool project = std::ranges::all_of(linears, [&](NodeId id) { return projections.contains(id); });
    c.reason = std::format("{} Linears read {}, but {}", linears.size(), Describe(graph, x),
                           project ? "they project for different attentions; only those of one are merged"
                                   : "no attention that octavo found takes them as q, k or v; only such are merged");
    report.candidates.push_back(std::move(c));
  }
}

// A Softmax that belongs to no core, and why it is none. Where scores go in and values meet what comes out it is attention all the same, and counts as such.
void AddOtherSoftmaxes(const Graph& graph, Report& report) {
  std::set<NodeId> centers;
  for (const AttentionCore& core : FindAttentionCores(graph)) centers.insert(core.center);
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.node(id).op != Op::kSoftmax || centers.contains(id)) continue;
    const bool attends = ScoresOf(graph, id).valid() && MeetsValues(graph, id);
    report.candidates.push_back({.kind = attends ? "attention" : "softmax",
                                 .nodes = {OriginName(graph.node(id))},
                                 .status = "left",
                                 .rule = "",
                                 .reason = WhyNoCore(graph, id)});
  }
}

}  // namespace

std::string SourceOf(const Candidate& candidate) {
  const std::string node = candidate.nodes.empty() ? "" : candidate.nodes[0];
  return candidate.place.empty() ? node : std::format("{} ({})", node, candidate.place);
}

Report TakeInventory(const Graph& graph) {
  Report report;
  for (const AttentionCore& core : FindAttentionCores(graph)) {
    Candidate c{.kind = "attention", .nodes = {}, .status = "left", .rule = "", .reason = WhyNotAttention(graph, core)};
    if (c.reason.empty()) c.reason = ir::vendor::WhyOpaque(graph, graph.node(core.center));
    for (NodeId id : {core.center, core.product_qk, core.product_pv}) AddOrigin(graph, id, c.nodes);
    report.candidates.push_back(std::move(c));
  }
  AddProjections(graph, report);
  for (NodeId id : graph.NodesInOrder()) {
    if (!IsLinear(graph, graph.node(id))) continue;
    Candidate c{.kind = "linear", .nodes = {}, .status = "left", .rule = "", .reason = ""};
    if (IsRouter(graph, id))
      c.reason =
          "it chooses experts (a TopK or ArgMax reads it), where a wrong choice costs more than int8 saves: it stays "
          "float";
    AddOrigin(graph, id, c.nodes);
    report.candidates.push_back(std::move(c));
  }
  AddExperts(graph, report);
  AddOtherProducts(graph, report);
  AddOtherSoftmaxes(graph, report);
  return report;
}

void Judge(const Graph& finished, const PassRun& run, Report& report) {
  const OriginIndex index(finished);
  const Misses misses(run.misses);
  const Decisions decisions(run.decisions);
  const Told told{misses, decisions};
  report.attention = report.qkv = report.linear = {};
  report.in_float = WeightsInFloat(finished);
  for (Candidate& c : report.candidates) {
    if (IsMadeLinear(c, index)) c.kind = "linear", c.reason.clear();
    Count uncounted;  // kv and shared: extras beside what a user asks for
    Count& count = c.kind == "attention" ? report.attention
                   : c.kind == "qkv"     ? report.qkv
                   : c.kind == "linear"  ? report.linear
                                         : uncounted;
    if (c.kind == "attention") JudgeAttention(c, index, told);
    if (c.kind == "qkv" || c.kind == "kv" || c.kind == "qk" || c.kind == "qv") JudgeQkv(c, index, told);
    if (c.kind == "shared") JudgeOneStep(c, index);
    if (c.kind == "linear") JudgeLinear(c, index, told);
    if (c.kind == "experts") JudgeExperts(c, index, told);
    ++count.found;
    if (c.status == "fused" || (c.kind == "linear" && c.status == "quantized")) ++count.done;
  }
}

std::vector<Candidate> RewritesOf(std::span<const std::string> names, const PassRun& run) {
  std::vector<Candidate> all;
  for (const std::string& name : names) {
    const size_t before = all.size();
    for (const Decision& d : run.decisions) {
      if (d.rule != name || d.fate != Decision::Fate::kRewritten) continue;
      all.push_back({.kind = "rewrite", .nodes = {d.node}, .status = "fused", .rule = name, .reason = ""});
    }
    if (all.size() > before) continue;
    const NearMiss* nearest = nullptr;
    const std::span<const NearMiss> misses = run.misses == nullptr ? std::span<const NearMiss>() : *run.misses;
    for (const NearMiss& m : misses) {
      if (m.rule == name && (nearest == nullptr || m.matched > nearest->matched)) nearest = &m;
    }
    Candidate none{.kind = "rewrite",
                   .nodes = {"-"},
                   .status = "left",
                   .rule = name,
                   .reason = "nothing in the model looks like it"};
    if (nearest != nullptr) none.nodes = {nearest->root}, none.reason = nearest->kind + ": " + nearest->reason;
    all.push_back(std::move(none));
  }
  return all;
}

}  // namespace octavo::passes
