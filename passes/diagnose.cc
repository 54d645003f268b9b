#include "octavo/passes/diagnose.h"

#include <algorithm>
#include <array>
#include <format>
#include <set>

namespace octavo::passes {

namespace {

bool IsRowwise(Op op) {
  return op == Op::kAdd || op == Op::kSub || op == Op::kMul || op == Op::kDiv || op == Op::kWhere || op == Op::kTanh ||
         op == Op::kCast;
}

// What is computed from the product, as far as one asks for scores.
std::set<ValueId> ComputedFrom(const Graph& g, NodeId product) {
  constexpr size_t kMost = 512;
  std::vector<ValueId> work{g.node(product).output()};
  std::set<ValueId> seen;
  while (!work.empty() && seen.size() < kMost) {
    const ValueId v = work.back();
    work.pop_back();
    if (!v.valid() || !seen.insert(v).second) continue;
    for (const ir::Use& use : g.value(v).uses) {
      if (g.node(use.node).op != Op::kShape && g.node(use.node).op != Op::kSoftmax)
        work.push_back(g.node(use.node).output());
    }
  }
  return seen;
}

// A factor that is neither one number nor one for each head.
bool IsWideFactor(const Graph& g, const Node& n, ValueId scores) {
  if (n.op != Op::kMul && n.op != Op::kDiv) return false;
  const auto& shape = g.value(n.input(0) == scores ? n.input(1) : n.input(0)).type.shape;
  return shape && !shape->empty() && !ProvablyEqual(shape->back(), ir::Dim(1));
}

// The first node above `v` that cannot stand between a score product and its Softmax.
std::string ObstacleAbove(const Graph& g, ValueId v, NodeId product) {
  const std::set<ValueId> scores = ComputedFrom(g, product);
  for (int steps = 0; steps < 24; ++steps) {
    const Node* n = g.Producer(v);
    if (n == nullptr || g.value(v).producer == product) return "";
    if (BeforeMixedHeads(g, v).valid()) {
      return std::format(
          "{} gives each head scores of all heads before the Softmax (talking heads), so no head has an attention of "
          "its own",
          Describe(g, v));
    }
    if (n->op == Op::kWhere && scores.contains(n->input(0))) {
      return std::format(
          "the scores themselves decide in {} which of them are hidden (sparse attention), and a mask here is another "
          "value",
          Describe(g, v));
    }
    if (n->op == Op::kConcat) {
      return std::format("{} joins scores of several products before their Softmax, and attention here has one product",
                         Describe(g, v));
    }
    if (!IsRowwise(n->op)) {
      return std::format("the scores pass through {} before their Softmax, which no form of attention here has",
                         Describe(g, v));
    }
    ValueId next;
    for (ValueId in : n->inputs) {
      if (in.valid() && scores.contains(in)) next = in;
    }
    if (!next.valid()) return "";
    if (IsWideFactor(g, *n, next)) {
      return std::format(
          "{} multiplies or divides the scores by more than one number a head, which is no scale and no mask",
          Describe(g, v));
    }
    v = next;
  }
  return "";
}

// Another Softmax whose probabilities are added to these before they meet V.
ValueId OtherProbabilities(const Graph& g, ValueId p, NodeId center) {
  std::vector<ValueId> work{p};
  for (size_t i = 0; i < work.size() && i < 64; ++i) {
    const Node* n = work[i].valid() ? g.Producer(work[i]) : nullptr;
    if (n == nullptr || n->op == Op::kMatMul) continue;
    if (n->op == Op::kSoftmax) {
      if (g.value(work[i]).producer != center) return work[i];
      continue;
    }
    work.insert(work.end(), n->inputs.begin(), n->inputs.end());
  }
  return {};
}

// The first non-constant weight above an operand; invalid: none.
struct Projection {
  NodeId linear;           // valid: it is a Linear
  NodeId product;          // valid: a MatMul whose weight is no constant
  NodeId conv;             // valid: a convolution
  bool pooled = false;     // a convolution, where the walk ended, changes what a Linear makes
  ValueId weight, origin;  // the weight; or where the walk ended
};
Projection ProjectionOf(const Graph& g, ValueId v) {
  Projection p;
  const std::vector<NodeId> linears = LinearsBehind(g, v);
  if (!linears.empty()) {
    p.linear = linears[0];
    return p;
  }
  p.conv = ConvBehind(g, v);
  if (p.conv.valid()) return p;
  for (int steps = 0; steps < 64; ++steps) {
    const Node* n = g.Producer(v);
    if (n == nullptr || n->op == Op::kConstant || n->op == Op::kSoftmax || n->op == Op::kEinsum) break;
    if (n->op == Op::kConv) {
      p.pooled = !LinearsBehind(g, n->input(0)).empty();
      break;
    }
    if (n->op == Op::kMatMul || n->op == Op::kGemm) {
      p.product = g.value(v).producer;
      p.weight = n->input(1);
      break;
    }
    v = n->input(0);
    if (!v.valid()) break;
  }
  p.origin = v;
  return p;
}

ValueId ActivationOf(const Graph& g, NodeId linear) {
  ValueId x = g.node(linear).input(0);
  for (const Node* n = g.Producer(x); n != nullptr && (n->op == Op::kDequantizeLinear || n->op == Op::kQuantizeLinear);
       n = g.Producer(x)) {
    x = n->input(0);
  }
  return x;
}

// What a Linear reads, in front of the views that passes/canonical/pointwise.cc put there.
std::string DescribeActivation(const Graph& g, NodeId linear) {
  ValueId x = ActivationOf(g, linear);
  for (const Node* n = g.Producer(x); n != nullptr && (n->op == Op::kTranspose || n->op == Op::kReshape) &&
                                      OriginName(*n) == OriginName(g.node(linear));
       n = g.Producer(x)) {
    x = n->input(0);
  }
  return Describe(g, x);
}

// Weights are easiest known by their names; constants that a pass made have none that a user knows.
std::string NonConstant(const Graph& g, ValueId weight) {
  ValueId v = weight;
  for (int steps = 0; steps < 16; ++steps) {
    const Node* n = g.Producer(v);
    if (n == nullptr) return std::format("it is graph input '{}'", g.value(v).name);
    if (n->op == Op::kConstant) break;
    v = n->input(0);
    if (!v.valid()) break;
  }
  return std::format("it is computed by {}", Describe(g, weight));
}

// No Linear: what it multiplies with is computed, or learned for each head.
bool IsProductOfValues(const Graph& g, const Node& n) {
  if (n.op == Op::kMatMul) return !IsLinear(g, n);
  const ir::Tensor* w = n.op == Op::kEinsum && n.inputs.size() > 1 ? g.ConstantOf(n.input(1)) : nullptr;
  return n.op == Op::kEinsum && (w == nullptr || w->rank() > 2);
}

// What an op makes of probabilities still is made of them: views, masks, sums, windows, and a matrix or norm over the heads.
bool CarriesProbabilities(const Graph& g, const ir::Use& use, const ir::Dim& heads) {
  const Node& n = g.node(use.node);
  switch (n.op) {
    case Op::kMatMul:
    case Op::kGemm: {
      const ir::Tensor* w = use.slot == 0 ? g.ConstantOf(n.input(1)) : nullptr;
      return w != nullptr && w->rank() == 2 && w->shape()[0] == w->shape()[1] && heads.is_number() &&
             heads.number() == w->shape()[0];
    }
    case Op::kWhere:
      return use.slot > 0;
    case Op::kScatterND:
    case Op::kScatterElements:
      return use.slot != 1;
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kConcat:
    case Op::kEinsum:
      return true;
    case Op::kConv:
    case Op::kShape:
    case Op::kSoftmax:
    case Op::kTopK:
    case Op::kArgMax:
      return false;
    default:
      return use.slot == 0;
  }
}

// Why passes/canonical/pointwise.cc left a convolution that makes q, k or v.
std::string WhyNoLinear(const Graph& g, const Node& conv) {
  const ir::Tensor* w = g.ConstantOf(conv.input(1));
  if (w == nullptr) return "its weight is not a constant";
  if (std::any_of(w->shape().begin() + 2, w->shape().end(), [](int64_t d) { return d != 1; }))
    return "its kernel reaches beyond one position, which no product does";
  const int64_t groups = conv.attrs.Int("group", 1);
  if (groups != 1)
    return std::format("it has {} groups, and as one product it would multiply {} times as much", groups, groups);
  const auto strides = conv.attrs.Ints("strides");
  if (std::ranges::any_of(strides, [](int64_t s) { return s != 1; })) return "its stride leaves positions out";
  return "something else reads its channels as well, it is in 16 bits with a bias, or its sizes are not known";
}

}  // namespace

std::string Describe(const Graph& g, ValueId v) {
  if (!v.valid()) return "an absent input";
  const Node* n = g.Producer(v);
  if (n == nullptr) return std::format("graph input '{}'", g.value(v).name);
  const std::string name = OriginName(*n);
  if (n->op == Op::kConstant) return std::format("constant '{}'", g.value(v).name);
  const std::string_view op = n->op == Op::kOpaque ? std::string_view(n->op_type) : ir::InfoOf(n->op).name;
  return std::format("{} '{}'", op, name.empty() ? g.value(v).name : name);
}

std::string WhyNotAttention(const Graph& g, const AttentionCore& core) {
  if (!core.product_qk.valid()) return "";
  const Node& softmax = g.node(core.center);
  if (std::string s = ObstacleAbove(g, softmax.input(0), core.product_qk); !s.empty()) return s;
  const Node& pv = g.node(core.product_pv);
  const ValueId p = pv.input(0);
  if (p == softmax.output()) return "";
  const Node* guard = g.Producer(p);
  if (guard != nullptr && guard->op == Op::kWhere && guard->input(2) == softmax.output()) return "";
  if (BeforeMixedHeads(g, p).valid()) {
    return std::format(
        "{} gives each head probabilities of all heads (talking heads), so no head has an attention of its own",
        Describe(g, p));
  }
  if (const ValueId other = OtherProbabilities(g, p, core.center); other.valid()) {
    return std::format(
        "V meets a sum of its probabilities and those of {} (gated attention), and attention here has one Softmax",
        Describe(g, other));
  }
  return std::format("the probabilities pass through {} before they meet V, which no form of attention here has",
                     Describe(g, p));
}

std::string WhyNoGroup(const Graph& g, const AttentionCore& core) {
  constexpr std::array<const char*, 3> kNames = {"q", "k", "v"};
  std::array<Projection, 3> p;
  int projections = 0;
  for (size_t i = 0; i < 3; ++i) {
    const ValueId operand = i == 0 ? core.q : i == 1 ? core.k : core.v;
    if (!operand.valid()) return "";
    p[i] = ProjectionOf(g, operand);
    projections += p[i].linear.valid() || p[i].product.valid() || p[i].conv.valid() || p[i].pooled ? 1 : 0;
  }
  if (projections < 2) return "";
  for (size_t i = 0; i < 3; ++i) {
    if (!p[i].product.valid()) continue;
    return std::format(
        "{}'s projection {} has a weight that is not a constant: {}; store the weight in the file as an initializer",
        kNames[i], Describe(g, g.node(p[i].product).output()), NonConstant(g, p[i].weight));
  }
  for (size_t i = 0; i < 3; ++i) {
    if (!p[i].conv.valid()) continue;
    const Node& conv = g.node(p[i].conv);
    return std::format("{}'s projection {} stays a convolution: {}", kNames[i], Describe(g, conv.output()),
                       WhyNoLinear(g, conv));
  }
  for (size_t i = 0; i < 3; ++i) {
    if (!p[i].linear.valid())
      return std::format("no Linear makes {}: it comes from {}", kNames[i], Describe(g, p[i].origin));
  }
  std::set<ValueId> activations;
  for (const Projection& one : p) activations.insert(ActivationOf(g, one.linear));
  if (activations.size() == 1) return "";
  return std::format("q, k and v do not read one activation: q reads {}, k reads {}, v reads {}",
                     DescribeActivation(g, p[0].linear), DescribeActivation(g, p[1].linear),
                     DescribeActivation(g, p[2].linear));
}

ValueId ScoresOf(const Graph& graph, NodeId softmax) {
  constexpr size_t kMostSeen = 1024;  // sliding windows by pads and slices take hundreds of nodes
  std::vector<ValueId> work{graph.node(softmax).input(0)};
  std::set<ValueId> seen;
  for (size_t i = 0; i < work.size() && i < kMostSeen; ++i) {
    const Node* p = work[i].valid() ? graph.Producer(work[i]) : nullptr;
    if (p == nullptr || !seen.insert(work[i]).second) continue;
    if (IsProductOfValues(graph, *p)) return work[i];
    if (p->op != Op::kMatMul && p->op != Op::kConv) work.insert(work.end(), p->inputs.begin(), p->inputs.end());
  }
  return {};
}

bool MeetsValues(const Graph& graph, NodeId softmax) {
  constexpr size_t kMostSeen = 1024;
  const ValueId p = graph.node(softmax).output();
  const auto& shape = graph.value(p).type.shape;
  const ir::Dim heads = shape && shape->size() > 2 ? (*shape)[shape->size() - 3] : ir::Dim();
  std::vector<ValueId> work{p};
  std::set<ValueId> seen;
  for (size_t i = 0; i < work.size() && i < kMostSeen; ++i) {
    if (!work[i].valid() || !seen.insert(work[i]).second) continue;
    for (const ir::Use& use : graph.value(work[i]).uses) {
      const Node& n = graph.node(use.node);
      if (IsProductOfValues(graph, n)) return true;
      if (CarriesProbabilities(graph, use, heads)) work.insert(work.end(), n.outputs.begin(), n.outputs.end());
    }
  }
  return false;
}

std::string WhyNoCore(const Graph& graph, NodeId softmax) {
  const Node& n = graph.node(softmax);
  const ValueId product = ScoresOf(graph, softmax);
  if (!product.valid())
    return std::format("not attention: what it normalizes comes from {}, not from a product of queries and keys",
                       Describe(graph, n.input(0)));
  if (const std::string why = ObstacleAbove(graph, n.input(0), graph.value(product).producer); !why.empty()) return why;
  const auto& uses = graph.value(n.output()).uses;
  if (uses.empty()) return "not attention: its result goes out of the model and meets no values";
  const std::string next = Describe(graph, graph.node(uses[0].node).output());
  if (!MeetsValues(graph, softmax))
    return std::format("its result goes to {}, which is no product with values that octavo knows", next);
  return std::format("the probabilities pass through {} before they meet V, which no form of attention here has", next);
}

}  // namespace octavo::passes
