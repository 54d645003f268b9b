// What keeps an attention core out of int8 in a graph that arrived quantized. A rule that compares shapes of graphs
// says "should be Softmax but is DequantizeLinear"; here the same is said in words of quantization, with the node that
// stands in the way.
#include <format>

#include "octavo/passes/attention.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::vendor {

using ir::DType;

namespace {

std::string OfOperand(const Graph& g, ValueId v, const char* what) {
  const Node* p = g.Producer(v);
  if (p == nullptr || p->op != Op::kDequantizeLinear) {
    return std::format("{} is float: no DequantizeLinear stands in front of the product", what);
  }
  const DType dtype = g.value(p->input(0)).type.dtype;
  if (!quant::IsCode8(dtype))
    return std::format("{} is quantized to {}, for which there is no attention kernel", what, quant::Name(dtype));
  const ir::Tensor* scale = g.ConstantOf(p->input(1));
  if (scale == nullptr || scale->size() != 1) return std::format("{} is not quantized with one constant scale", what);
  return {};
}

// The type behind a DequantizeLinear.
DType CodesOf(const Graph& g, ValueId v) { return g.value(g.Producer(v)->input(0)).type.dtype; }

std::string Why(const Graph& g, const AttentionCore& core) {
  const Node& softmax = g.node(core.center);
  if (softmax.op != Op::kSoftmax) return {};
  const Node& qk = g.node(core.product_qk);
  const Node& pv = g.node(core.product_pv);
  for (const auto& [v, what] : {std::pair{qk.input(0), "Q"}, {qk.input(1), "K"}, {pv.input(1), "V"}}) {
    if (std::string why = OfOperand(g, v, what); !why.empty()) return why;
  }
  if (std::string why = OfOperand(g, pv.input(0), "P (the probabilities)"); !why.empty()) return why;
  const DType types[] = {CodesOf(g, qk.input(0)), CodesOf(g, qk.input(1)), CodesOf(g, pv.input(1)),
                         CodesOf(g, pv.input(0))};
  static constexpr const char* kOperands[] = {"Q", "K", "V", "P"};
  for (int i = 1; i < 4; ++i) {
    if (quant::IsFp8(types[i]) == quant::IsFp8(types[0])) continue;
    return std::format("{} is quantized to {}, Q to {}: the kernels take all integers or all fp8", kOperands[i],
                       quant::Name(types[i]), quant::Name(types[0]));
  }
  return {};
}

// Weights that integer_form could not bring to s8 around 0 (centered.cc).
std::string WhyNotLinear(const Graph& g, const Node& n) {
  const Node* w = IsLinear(g, n) ? g.Producer(n.input(1)) : nullptr;
  if (w == nullptr || w->op != Op::kDequantizeLinear || g.value(w->input(0)).type.dtype != DType::kU8) return {};
  return "its weights are u8 and some lie more than 128 below or 127 above their zero point, which takes an activation "
         "in codes with one scale; quantize weights to s8 (ONNX Runtime: weight_type=QuantType.QInt8)";
}

}  // namespace

Result<bool> WhyNotInt8(Graph& graph, PassRun& run) {
  if (run.misses == nullptr) return false;
  for (const Candidate& c : QOperatorCandidates(graph)) {
    run.misses->push_back(
        {c.kind == "attention" ? "quantized_sdpa" : "quantized_linear", c.nodes[0], 1000, "NoKernel", c.reason});
  }
  for (const NodeId id : graph.NodesInOrder()) {
    const std::string why = WhyNotLinear(graph, graph.node(id));
    if (!why.empty()) run.misses->push_back({"quantized_linear", OriginName(graph.node(id)), 1000, "NoKernel", why});
  }
  for (const AttentionCore& core : FindAttentionCores(graph)) {
    if (!core.product_qk.valid() || !core.product_pv.valid()) continue;
    const std::string why = Why(graph, core);
    if (why.empty()) continue;
    // Deeper than any attempt of a rule: this is the reason, the attempts are its consequences.
    run.misses->push_back({"quantized_sdpa", OriginName(graph.node(core.center)), 1000, "NoKernel", why});
  }
  return false;
}

}  // namespace octavo::passes::vendor
