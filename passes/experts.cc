#include "octavo/passes/experts.h"

#include <algorithm>
#include <format>
#include <set>
#include <utility>

#include "octavo/passes/attention.h"
#include "octavo/passes/unfold.h"

namespace octavo::passes {

namespace {

// Reads or places elements where the indices say.
bool UsesIndices(Op op) {
  return op == Op::kGather || op == Op::kGatherElements || op == Op::kGatherND || op == Op::kScatterElements ||
         op == Op::kOneHot || op == Op::kEqual;
}

// An ArgMax that chooses; one that tells a class goes out of the model.
bool Chooses(const Graph& g, const Node& argmax) {
  if (g.IsGraphOutput(argmax.output())) return false;
  for (const ir::Use& u : g.value(argmax.output()).uses) {
    if (UsesIndices(g.node(u.node).op)) return true;
  }
  return false;
}

}  // namespace

bool IsRouter(const Graph& graph, NodeId linear) {
  constexpr int64_t kMostExperts = 1024;
  const ir::Tensor* w = graph.ConstantOf(graph.node(linear).input(1));
  if (w == nullptr || w->rank() != 2 || w->shape()[1] > kMostExperts) return false;
  std::vector<ValueId> front{graph.node(linear).output()};
  for (int steps = 0; steps < 8 && !front.empty(); ++steps) {
    std::vector<ValueId> next;
    for (const ValueId v : front) {
      for (const ir::Use& u : graph.value(v).uses) {
        const Node& n = graph.node(u.node);
        if (n.op == Op::kTopK && u.slot == 0)
          return !graph.IsGraphOutput(n.output(0)) && !graph.IsGraphOutput(n.output(1));
        if (n.op == Op::kArgMax && Chooses(graph, n)) return true;
        const bool stays = n.op == Op::kAdd || n.op == Op::kSoftmax || n.op == Op::kSigmoid || n.op == Op::kReshape ||
                           n.op == Op::kCast || n.op == Op::kIdentity;
        if (stays && n.output().valid() && next.size() < 8) next.push_back(n.output());
      }
    }
    front = std::move(next);
  }
  return false;
}

namespace {

// Takes whole matrices of a tensor along its first axis, by indices that the graph computes.
bool TakesMatrices(const Graph& g, const Node& n) {
  if (!n.input(1).valid() || g.ConstantOf(n.input(1)) != nullptr) return false;
  if (n.op == Op::kGather) return n.attrs.Int("axis", 0) == 0;
  if (n.op != Op::kGatherND || n.attrs.Int("batch_dims", 0) != 0) return false;
  const auto& indices = g.value(n.input(1)).type.shape;
  return indices && !indices->empty() && indices->back().is_number() && indices->back().number() == 1;
}

bool IsView(const Node& n) {
  return n.op == Op::kTranspose || n.op == Op::kReshape || n.op == Op::kSqueeze || n.op == Op::kUnsqueeze ||
         n.op == Op::kFlatten || n.op == Op::kIdentity;
}

// A Transpose of the last two dims alone.
bool IsFlip(const Graph& g, const Node& n) {
  const auto& shape = g.value(n.input(0)).type.shape;
  if (n.op != Op::kTranspose || !shape || shape->size() < 2) return false;
  std::vector<int64_t> flip;
  flip.reserve(shape->size());
  for (size_t i = 0; i < shape->size(); ++i) flip.push_back(static_cast<int64_t>(i));
  std::swap(flip[flip.size() - 1], flip[flip.size() - 2]);
  const std::vector<int64_t> perm = n.attrs.Ints("perm");
  return perm == flip || (perm.empty() && flip.size() == 2);
}

}  // namespace

std::optional<Experts> ExpertsAt(const Graph& graph, NodeId gather) {
  const Node& n = graph.node(gather);
  if (n.op != Op::kGather && n.op != Op::kGatherND) return {};
  const ir::Tensor* w = graph.ConstantOf(n.input(0));
  if (w == nullptr || w->rank() != 3 || !quant::IsFloat(w->dtype()) || w->shape()[0] < 2) return {};
  if (!TakesMatrices(graph, n)) return {};
  Experts e{.gather = gather, .product = {}, .flips = {}};
  ValueId v = n.output();
  for (int steps = 0; steps < 6 && graph.HasOneUse(v); ++steps) {
    const ir::Use use = graph.value(v).uses.front();
    const Node& reader = graph.node(use.node);
    e.direct = e.direct && reader.op != Op::kEinsum;
    if (reader.op == Op::kMatMul || reader.op == Op::kEinsum) {
      e.product = use.node, e.slot = use.slot;
      if (e.direct) e.summed = (use.slot == 0) != (e.flips.size() % 2 == 1) ? 2 : 1;
      return e;
    }
    if (!IsView(reader) || use.slot != 0) return {};
    if (IsFlip(graph, reader)) {
      e.flips.push_back(reader.attrs);
    } else {
      e.direct = false;
    }
    v = reader.output();
  }
  return {};
}

namespace {

// The constant that v is a view of, that it dequantizes or takes matrices of; null: none.
const ir::Tensor* WeightsBehind(const Graph& g, ValueId v) {
  for (int steps = 0; steps < 8 && v.valid(); ++steps) {
    if (const ir::Tensor* t = g.ConstantOf(v)) return t;
    const Node* n = g.Producer(v);
    if (n == nullptr) return nullptr;
    const ir::Tensor* taken = n->op == Op::kGather || n->op == Op::kGatherND ? g.ConstantOf(n->input(0)) : nullptr;
    if (taken != nullptr) return taken->rank() >= 3 ? taken : nullptr;
    if (!IsView(*n) && n->op != Op::kDequantizeLinear && n->op != Op::kCast) return nullptr;
    v = n->input(0);
  }
  return nullptr;
}

// Of two dims that are no vectors: an outer product, as of frequencies and positions, has no weights.
bool HoldsMatrices(const ir::Tensor& t) {
  return t.size() > 0 && std::ranges::count_if(t.shape(), [](int64_t d) { return d > 1; }) >= 2;
}

// Empty: it is no product with a constant of matrices.
std::string WhyNoLinear(const Graph& g, const Node& n) {
  if (n.op == Op::kConv) {
    const ir::Tensor* w = WeightsBehind(g, n.input(1));
    const bool product = w != nullptr && w->rank() >= 3 && HoldsMatrices(*w) && n.attrs.Int("group", 1) == 1 &&
                         w->size() / (w->shape()[0] * w->shape()[1]) <= kMostPositionsInCodes;
    if (!product) return "";
    return std::format(
        "it is a convolution: recipes int8 and dynamic quantize those of {} channels and filters or more, over more "
        "than one position; beside depthwise ones dynamic leaves kernel 1",
        kLeastChannelsInCodes);
  }
  if (n.op != Op::kMatMul && n.op != Op::kGemm && n.op != Op::kEinsum) return "";
  for (size_t i = 0; i < (n.op == Op::kGemm ? 2 : n.inputs.size()); ++i) {
    const ir::Tensor* w = WeightsBehind(g, n.input(i));
    if (w == nullptr || !HoldsMatrices(*w)) continue;
    if (n.op == Op::kEinsum) return "octavo knows no products that Einsum '" + n.attrs.Str("equation", "") + "' is";
    if (!quant::IsFloat(w->dtype()) || quant::IsFp8(w->dtype()))
      return "its constant is codes already, and is no matrix of its own: it is multiplied as floats";
    return i == 0 ? "its constant is the left operand: what it multiplies is no row of activations"
                  : "its constant has a matrix for each entry of a batch, as positions of heads: octavo quantizes "
                    "products "
                    "with one matrix";
  }
  return "";
}

}  // namespace

std::vector<OtherProduct> OtherProducts(const Graph& graph) {
  std::set<NodeId> known;
  for (const AttentionCore& core : FindAttentionCores(graph)) known.insert({core.product_qk, core.product_pv});
  for (NodeId id : graph.NodesInOrder()) {
    if (const auto experts = ExpertsAt(graph, id)) known.insert(experts->product);
  }
  std::vector<OtherProduct> all;
  for (NodeId id : graph.NodesInOrder()) {
    if (known.contains(id) || IsLinear(graph, graph.node(id))) continue;
    if (std::string why = WhyNoLinear(graph, graph.node(id)); !why.empty()) all.push_back({id, std::move(why)});
  }
  return all;
}

}  // namespace octavo::passes
