// dynamic: int8 products without calibration; behind `quantize` those of the Linears that it left in float. Each row of the activation is quantized at run time with a scale and a zero point of its
// own: behind a GELU half of the codes around zero would never be used.
// Before: y = MatMul(x, W) [+ bias] [Gelu | Relu | Sigmoid | SiLU | Tanh]     W f32 [K,N] constant
// After:  q, s, z = QuantizeTokens(x)   y = LinearInt8(q, s, z, Wq, w_scale, bias; activation, per_token = 1)
// Linears that read the same x share its codes. Attention stays float.
// Left, with a line in the log: weights that are not finite, k beyond what int32 sums hold.
#include <map>

#include "octavo/kernels/catalog.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

struct Tokens {
  ValueId codes, scale, zero;
};

// A Linear with what its epilogue takes along: the last node's value is what LinearInt8 gives.
struct Chain {
  NodeId product, last;
  ValueId bias;
  std::string activation = "none";
  std::vector<NodeId> nodes;
};

// The only reader of the node's result, if there is one and no output of the graph beside it.
const Node* OnlyReader(const Graph& g, NodeId id) {
  const ValueId v = g.node(id).output();
  return g.HasOneUse(v) && g.value(v).uses.size() == 1 ? &g.node(g.value(v).uses[0].node) : nullptr;
}

std::string ActivationOf(const Node& n) {
  switch (n.op) {
    case Op::kGelu:
      return n.attrs.Str("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu";
    case Op::kRelu:
      return "relu";
    case Op::kSigmoid:
      return "sigmoid";
    case Op::kTanh:
      return "tanh";
    default:
      return "";
  }
}

// The Mul of x * Sigmoid(x), where nothing else reads x; null: x goes elsewhere.
const Node* SiluAt(const Graph& g, NodeId id) {
  const ValueId x = g.node(id).output();
  if (g.IsGraphOutput(x) || g.value(x).uses.size() != 2) return nullptr;
  for (const ir::Use& use : g.value(x).uses) {
    if (g.node(use.node).op != Op::kSigmoid) continue;
    const ValueId gate = g.node(use.node).output();
    const Node* mul = OnlyReader(g, use.node);
    if (mul == nullptr || mul->op != Op::kMul) continue;
    if ((mul->input(0) == x && mul->input(1) == gate) || (mul->input(0) == gate && mul->input(1) == x)) return mul;
  }
  return nullptr;
}

Chain ChainAt(const Graph& g, NodeId product) {
  Chain c{.product = product, .last = product, .bias = {}, .nodes = {product}};
  const int64_t n = g.ConstantOf(g.node(product).input(1))->shape()[1];
  const auto take = [&c, &g](const Node& next) {
    c.last = g.value(next.output()).producer;
    c.nodes.push_back(c.last);
  };
  const Node* next = OnlyReader(g, c.last);
  if (next != nullptr && next->op == Op::kAdd) {
    const ValueId other = next->input(0) == g.node(product).output() ? next->input(1) : next->input(0);
    const Tensor* bias = g.ConstantOf(other);
    if (bias != nullptr && bias->dtype() == DType::kF32 && bias->rank() == 1 && bias->size() == n) {
      c.bias = other;
      take(*next);
      next = OnlyReader(g, c.last);
    }
  }
  if (const Node* silu = SiluAt(g, c.last)) {
    c.activation = "silu";
    c.nodes.push_back(g.value(silu->input(0) == g.node(c.last).output() ? silu->input(1) : silu->input(0)).producer);
    take(*silu);
  } else if (next != nullptr && !ActivationOf(*next).empty()) {
    c.activation = ActivationOf(*next);
    take(*next);
  }
  return c;
}

}  // namespace

Result<bool> Dynamic(Graph& graph, PassRun& run) {
  Rewriter b(graph, "dynamic");
  std::map<ValueId, Tokens> tokens;
  std::map<ValueId, std::optional<ColumnWeights>> weights;
  std::map<ValueId, std::pair<ValueId, ValueId>> made;
  for (NodeId id : FindSites(graph, run.keep_float).linears) {
    const Node& n = graph.node(id);
    const ValueId x = n.inputs[0], w = n.inputs[1];
    auto [columns, fresh] = weights.try_emplace(w);
    if (fresh) columns->second = QuantizeInt8(*graph.ConstantOf(w), run);
    const auto& shape = graph.ConstantOf(w)->shape();
    const kernels::Choice choice =
        kernels::ChooseLinear({.y = {DType::kF32}, .k = shape[0], .n = {shape[1]}}, kernels::Arch::kScalar);
    if (!columns->second || !choice.ok()) {
      const std::string why = choice.ok() ? "its weight has values that are not finite" : choice.refusal;
      run.Leave("dynamic", n, "stays float: " + why);
      continue;
    }
    const Chain c = ChainAt(graph, id);
    b.At(id, {id});
    auto [at, first] = tokens.try_emplace(x);
    if (first) {
      const Node& q = graph.node(b.CreateN(Op::kQuantizeTokens, {x}, 3));
      at->second = {q.output(0), q.output(1), q.output(2)};
    }
    auto [stored, unseen] = made.try_emplace(w);
    if (unseen) {
      const std::string name = graph.value(w).name;
      stored->second = {b.Constant(columns->second->codes, name + "_quantized"),
                        b.Constant(columns->second->scale, name + "_scale")};
    }
    const auto& [codes, scale, zero] = at->second;
    std::vector<ValueId> in{codes, scale, zero, stored->second.first, stored->second.second};
    if (c.bias.valid()) in.push_back(c.bias);
    b.At(c.last, c.nodes);
    const ValueId y =
        b.Create(Op::kLinearInt8, std::move(in), {{"activation", c.activation}, {"per_token", int64_t{1}}});
    b.Replace(graph.node(c.last).output(), y);
    b.EraseDead(c.last);
  }
  if (b.changed() && !graph.SortTopologically()) return ir::Fail("dynamic made a cycle");
  return b.changed();
}

}  // namespace octavo::passes::quantize
