// QOperator graphs: what stands there of linears, QKV groups and attention, and why it is left. QLinearMatMul rounds
// rint(acc * scale + zero) in double; the kernels follow QuantizeLinear, rne(y / scale) + zero in float32. At ties, and
// next to them, the two give neighbouring codes, so a fused op would not be bit for bit what the file says.
#include <algorithm>
#include <map>

#include "octavo/passes/attention.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::passes::vendor {

namespace {

constexpr const char* kReason =
    "QLinearMatMul rounds in an order of its own (the zero point before the rounding), which the kernels do not "
    "follow; write the "
    "model in QDQ format (ONNX Runtime: quant_format=QuantFormat.QDQ), or give octavo the float model";

bool IsLinearOperator(const Graph& g, const Node& n) {
  return n.op == Op::kQLinearMatMul && g.ConstantOf(n.input(3)) != nullptr;
}

// Through what scores become probabilities, in either direction.
bool IsBetween(Op op) {
  return op == Op::kQuantizeLinear || op == Op::kDequantizeLinear || op == Op::kMul || op == Op::kAdd ||
         op == Op::kSoftmax || op == Op::kWhere || op == Op::kDiv || op == Op::kIsNaN;
}

bool ReachesProduct(const Graph& g, NodeId softmax, bool forward) {
  std::vector<NodeId> work{softmax};
  for (size_t i = 0; i < work.size() && i < 64; ++i) {
    const Node& n = g.node(work[i]);
    if (n.op == Op::kQLinearMatMul) return true;
    if (!IsBetween(n.op)) continue;
    for (ValueId v : forward ? n.outputs : n.inputs) {
      if (!v.valid()) continue;
      if (!forward && g.value(v).producer.valid()) work.push_back(g.value(v).producer);
      for (const ir::Use& u : forward ? g.value(v).uses : std::vector<ir::Use>()) work.push_back(u.node);
    }
  }
  return false;
}

}  // namespace

std::vector<Candidate> QOperatorCandidates(const Graph& graph) {
  std::vector<Candidate> found;
  std::map<ValueId, std::vector<std::string>> by_activation;
  const auto add = [&](const char* kind, std::vector<std::string> nodes) {
    found.push_back({.kind = kind, .nodes = std::move(nodes), .status = "left", .rule = "", .reason = kReason});
  };
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op == Op::kSoftmax && ReachesProduct(graph, id, false) && ReachesProduct(graph, id, true))
      add("attention", {OriginName(n)});
    if (!IsLinearOperator(graph, n)) continue;
    add("linear", {OriginName(n)});
    by_activation[n.input(0)].push_back(OriginName(n));
  }
  for (auto& [x, names] : by_activation) {
    if (names.size() >= 2) add("qkv", std::move(names));
  }
  return found;
}

}  // namespace octavo::passes::vendor
