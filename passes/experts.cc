#include "octavo/passes/experts.h"

#include <utility>

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

// A Transpose of the last two dims alone.
bool IsFlip(const Graph& g, const Node& n) {
  const auto& shape = g.value(n.input(0)).type.shape;
  if (n.op != Op::kTranspose || !shape || shape->size() < 2) return false;
  std::vector<int64_t> flip;
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
  std::vector<ir::Attrs> flips;
  ValueId v = n.output();
  for (int steps = 0; steps < 4 && graph.HasOneUse(v); ++steps) {
    const ir::Use use = graph.value(v).uses.front();
    const Node& reader = graph.node(use.node);
    if (reader.op == Op::kMatMul) {
      const bool flipped = flips.size() % 2 == 1;
      return Experts{gather, use.node, (use.slot == 0) != flipped ? 2 : 1, std::move(flips)};
    }
    if (!IsFlip(graph, reader)) return {};
    flips.push_back(reader.attrs);
    v = reader.output();
  }
  return {};
}

}  // namespace octavo::passes
