// What stands in QLinearMatMuls that are left: linears, QKV groups and attention, and why. integer_form has taken those whose rounding the
// kernels follow; a recipe without that pass leaves all.
#include <algorithm>
#include <map>

#include "octavo/passes/attention.h"
#include "octavo/passes/vendor/requantized.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::passes::vendor {

namespace {

std::string WhyLeft(const Graph& g, const Node& n) {
  const std::string why = WhyNotDequantized(g, n);
  if (!why.empty())
    return why +
           "; write the model in QDQ format (ONNX Runtime: quant_format=QuantFormat.QDQ), or give octavo the float "
           "model";
  return "this recipe leaves QLinearMatMul as it is; use recipe quantized, which fuses it";
}

bool IsLinearOperator(const Graph& g, const Node& n) {
  return n.op == Op::kQLinearMatMul && g.ConstantOf(n.input(3)) != nullptr;
}

// Through what scores become probabilities, in either direction.
bool IsBetween(Op op) {
  return op == Op::kQuantizeLinear || op == Op::kDequantizeLinear || op == Op::kMul || op == Op::kAdd ||
         op == Op::kSoftmax || op == Op::kWhere || op == Op::kDiv || op == Op::kIsNaN;
}

// The QLinearMatMul that is reached; null: none.
const Node* ReachedProduct(const Graph& g, NodeId softmax, bool forward) {
  std::vector<NodeId> work{softmax};
  for (size_t i = 0; i < work.size() && i < 64; ++i) {
    const Node& n = g.node(work[i]);
    if (n.op == Op::kQLinearMatMul) return &n;
    if (!IsBetween(n.op)) continue;
    for (ValueId v : forward ? n.outputs : n.inputs) {
      if (!v.valid()) continue;
      if (!forward && g.value(v).producer.valid()) work.push_back(g.value(v).producer);
      for (const ir::Use& u : forward ? g.value(v).uses : std::vector<ir::Use>()) work.push_back(u.node);
    }
  }
  return nullptr;
}

}  // namespace

std::vector<Candidate> QOperatorCandidates(const Graph& graph) {
  std::vector<Candidate> found;
  std::map<ValueId, std::vector<NodeId>> by_activation;
  const auto add = [&](const char* kind, std::vector<std::string> nodes, std::string reason) {
    found.push_back(
        {.kind = kind, .nodes = std::move(nodes), .status = "left", .rule = "", .reason = std::move(reason)});
  };
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    const Node* scores = n.op == Op::kSoftmax ? ReachedProduct(graph, id, false) : nullptr;
    const Node* values = scores != nullptr ? ReachedProduct(graph, id, true) : nullptr;
    if (values != nullptr)
      add("attention", {OriginName(n)}, WhyLeft(graph, WhyNotDequantized(graph, *scores).empty() ? *values : *scores));
    if (!IsLinearOperator(graph, n)) continue;
    add("linear", {OriginName(n)}, WhyLeft(graph, n));
    by_activation[n.input(0)].push_back(id);
  }
  for (const auto& [x, products] : by_activation) {
    if (products.size() < 2) continue;
    std::vector<std::string> names;
    for (NodeId id : products) names.push_back(OriginName(graph.node(id)));
    add("qkv", std::move(names), WhyLeft(graph, graph.node(products[0])));
  }
  return found;
}

}  // namespace octavo::passes::vendor
