#include "octavo/ir/vendor/lower.h"

#include <initializer_list>
#include <optional>
#include <string_view>

#include "octavo/ir/attr_table.h"
#include "octavo/ir/typed.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Entry {
  std::string_view op;
  Status (*rule)(Site& s);
  size_t inputs;                         // more than these no rule looks at
  std::initializer_list<size_t> needed;  // inputs that must be there
};
constexpr Entry kRules[] = {
    {"Attention", PackedAttention, 7, {0, 1}},
    {"BiasAdd", BiasAdd, 3, {0, 1, 2}},
    {"CausalConvWithState", CausalConvWithState, 4, {0, 1}},
    {"DecoderMaskedMultiHeadAttention", DecoderMaskedMultiHeadAttention, 11, {0}},
    {"DynamicQuantizeMatMul", DynamicQuantizeMatMul, 5, {0, 1, 2}},
    {"EmbedLayerNormalization", EmbedLayerNorm, 9, {0, 2, 3, 5, 6}},
    {"ExpandDims", ExpandDims, 2, {0, 1}},
    {"FusedConv", FusedConv, 4, {0, 1}},
    {"FusedGemm", FusedGemm, 3, {0, 1}},
    {"FusedMatMul", FusedMatMul, 2, {0, 1}},
    {"GatedRMSNorm", GatedRmsNorm, 3, {0, 1, 2}},
    {"GatherBlockQuantized", GatherBlockQuantized, 4, {0, 1, 2}},
    {"GridSample", GridSample, 2, {0, 1}},
    {"GroupQueryAttention", GroupQueryAttention, 16, {0, 5, 6}},
    {"LinearAttention", LinearAttention, 6, {0, 1, 2}},
    {"LinearAttentionGate", LinearAttentionGate, 4, {0, 1, 2}},
    {"MatMulBnb4", MatMulBnb4, 3, {0, 1, 2}},
    {"MatMulIntegerToFloat", MatMulIntegerToFloat, 7, {0, 1, 2, 3}},
    {"MatMulNBits", MatMulNBits, 6, {0, 1, 2}},
    {"MoE", MixtureOfExperts, 8, {0, 1, 2, 4}},
    {"MultiHeadAttention", MultiHeadAttention, 10, {0}},
    {"QAttention", PackedAttention, 9, {0, 1, 3, 4}},
    {"QEmbedLayerNormalization", EmbedLayerNorm, 18, {0, 2, 3, 5, 6, 8, 9, 11, 12}},
    {"QLinearAveragePool", QLinearPool, 5, {0, 1, 3}},
    {"QLinearGlobalAveragePool", QLinearPool, 5, {0, 1, 3}},
    {"QLinearReduceMean", QLinearReduceMean, 5, {0, 1, 3, 4}},
    {"QLinearWhere", QLinearWhere, 9, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
    {"QMoE", QuantizedExperts, 15, {0, 1, 2, 3, 5, 6}},
    {"QuickGelu", QuickGelu, 1, {0}},
    {"Range", Range, 3, {0, 1}},
    {"RotaryEmbedding", RotaryEmbedding, 4, {0, 1, 2, 3}},
    {"ScaledSiLU", ScaledSilu, 2, {0}},
    {"SkipSimplifiedLayerNormalization", SkipRmsNorm, 4, {}},
    {"TransposeMatMul", FusedMatMul, 2, {0, 1}},
};

const Entry* RuleOf(const Node& n) {
  if (n.op != Op::kOpaque || n.domain != "com.microsoft") return nullptr;
  for (const Entry& e : kRules) {
    if (e.op == n.op_type) return &e;
  }
  return nullptr;
}

Status CheckAttrs(const std::string& op, const Attrs& attrs) {
  OCTAVO_TRY(const bool known, CheckAttributes("com.microsoft", op, attrs));
  if (known) return {};
  return Fail("com.microsoft.{} has an attribute that octavo does not know; export with an older ONNX Runtime", op);
}

// A rule sees only nodes of the inputs that it knows, and every output that is read must come out of it.
Status Build(const Entry& entry, Site& site) {
  OCTAVO_TRY_STATUS(CheckAttrs(site.op(), site.attrs()));
  OCTAVO_TRY_STATUS(site.CheckInputs(entry.inputs, entry.needed));
  OCTAVO_TRY_STATUS(entry.rule(site));
  return site.CheckOutputs();
}

// Numbers of nodes that became standard and that did not.
std::pair<int, int> LowerOnce(Graph& graph) {
  std::pair<int, int> counts;
  std::optional<Graph> typed;
  for (NodeId id : graph.NodesInOrder()) {
    const Entry* entry = RuleOf(graph.node(id));
    if (entry == nullptr) continue;
    if (!typed) typed = Typed(graph);
    Site site(graph, *typed, id);
    if (Build(*entry, site)) {
      site.Commit();
      ++counts.first;
    } else {
      site.Undo();
      ++counts.second;
    }
  }
  return counts;
}

}  // namespace

Status Lower(Graph& graph, const LowerOptions& options) {
  AttentionWindows(graph);
  if (options.attention_before_122) OCTAVO_TRY_STATUS(AttentionBefore122(graph, Typed(graph)));
  // What a rule asks of shapes may come of a node that another rule has lowered: a rank behind FusedConv. Rounds are few, since each infers all types anew.
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    const auto [lowered, refused] = LowerOnce(graph);
    if (lowered == 0 || refused == 0) break;
  }
  return {};
}

std::string WhyOpaque(const Graph& graph, const Node& n) {
  if (n.op != Op::kOpaque || n.domain != "com.microsoft") return {};
  if (auto ok = CheckAttrs(n.op_type, n.attrs); !ok) {
    return std::format("node '{}': {}", DisplayName(n), ok.error().message);
  }
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
  const Status status = Build(*entry, site);
  return status ? std::string() : status.error().message;
}

}  // namespace octavo::ir::vendor
