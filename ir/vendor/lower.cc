#include "octavo/ir/vendor/lower.h"

#include <optional>
#include <string_view>

#include "octavo/ir/infer.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Entry {
  std::string_view op;
  Status (*rule)(Site& s);
};
constexpr Entry kRules[] = {
    {"Attention", PackedAttention},
    {"BiasAdd", BiasAdd},
    {"DynamicQuantizeMatMul", DynamicQuantizeMatMul},
    {"EmbedLayerNormalization", EmbedLayerNorm},
    {"FusedGemm", FusedGemm},
    {"FusedMatMul", FusedMatMul},
    {"GroupQueryAttention", GroupQueryAttention},
    {"MatMulIntegerToFloat", MatMulIntegerToFloat},
    {"MatMulNBits", MatMulNBits},
    {"MultiHeadAttention", MultiHeadAttention},
    {"QAttention", PackedAttention},
    {"QEmbedLayerNormalization", EmbedLayerNorm},
    {"QLinearAveragePool", QLinearPool},
    {"QLinearGlobalAveragePool", QLinearPool},
    {"QLinearReduceMean", QLinearReduceMean},
    {"QLinearWhere", QLinearWhere},
    {"QuickGelu", QuickGelu},
    {"RotaryEmbedding", RotaryEmbedding},
    {"SkipSimplifiedLayerNormalization", SkipRmsNorm},
    {"TransposeMatMul", FusedMatMul},
};

const Entry* RuleOf(const Node& n) {
  if (n.op != Op::kOpaque || n.domain != "com.microsoft") return nullptr;
  for (const Entry& e : kRules) {
    if (e.op == n.op_type) return &e;
  }
  return nullptr;
}

// A copy with types; where inference finds a contradiction, what it had found until then does not count.
Graph Typed(const Graph& g) {
  Graph typed = g;
  if (!Inference::Run(typed)) return g;
  return typed;
}

}  // namespace

Status Lower(Graph& graph, const LowerOptions& options) {
  if (options.attention_before_122) OCTAVO_TRY_STATUS(AttentionBefore122(graph, Typed(graph)));
  std::optional<Graph> typed;
  for (NodeId id : graph.NodesInOrder()) {
    const Entry* entry = RuleOf(graph.node(id));
    if (entry == nullptr) continue;
    if (!typed) typed = Typed(graph);
    Site site(graph, *typed, id);
    if (entry->rule(site)) {
      site.Commit();
    } else {
      site.Undo();
    }
  }
  return {};
}

std::string WhyOpaque(const Graph& graph, const Node& n) {
  if (n.op != Op::kOpaque || n.domain != "com.microsoft") return {};
  const Entry* entry = RuleOf(n);
  if (entry == nullptr) {
    return std::format(
        "node '{}': octavo has no standard form of com.microsoft.{}; export the model without ONNX Runtime's "
        "own fusions, or with a version of it that leaves this op out",
        DisplayName(n), n.op_type);
  }
  NodeId id;
  for (ValueId v : n.outputs) id = v.valid() ? graph.value(v).producer : id;
  if (!graph.IsAlive(id)) return {};
  Graph copy = graph;
  const Graph typed = Typed(graph);
  Site site(copy, typed, id);
  const Status status = entry->rule(site);
  return status ? std::string() : status.error().message;
}

}  // namespace octavo::ir::vendor
