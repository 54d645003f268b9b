#include "octavo/ir/beside.h"

#include <algorithm>

#include "octavo/quant/numeric/code8.h"

namespace octavo::ir {

namespace {

bool SameAttr(const Node& a, const Node& b, const char* name) { return a.attrs.Int(name, 0) == b.attrs.Int(name, 0); }

// Rows of the weight of a LinearBlocked; -1: not known.
int64_t DepthOf(const Graph& g, const Node& n) {
  const auto& shape = g.value(n.input(1)).type.shape;
  const size_t axis = n.attrs.Int("transposed", 0) != 0 ? 1 : 0;
  return shape && shape->size() == 2 && (*shape)[axis].is_number() ? (*shape)[axis].number() : -1;
}

bool ReadAlike(const Graph& g, const Node& a, const Node& b) {
  if (a.op != b.op) return false;
  if (a.op == Op::kLinearBlocked) return DepthOf(g, a) == DepthOf(g, b) && SameAttr(a, b, "x_bits");
  return a.op == Op::kQuantizedLinear && a.input(1) == b.input(1) && a.input(2) == b.input(2) && !b.input(9).valid() &&
         SameAttr(a, b, "per_token");
}

}  // namespace

std::vector<NodeId> ProductsBeside(const Graph& g, NodeId id) {
  const Node& node = g.node(id);
  std::vector<NodeId> all;
  for (const Use& use : g.value(node.input(0)).uses) {
    if (use.slot == 0 && ReadAlike(g, node, g.node(use.node))) all.push_back(use.node);
  }
  std::ranges::sort(all, [&g](NodeId a, NodeId b) { return g.Before(a, b); });
  return all;
}

bool AreOneStep(const Graph& g, std::span<const NodeId> products) {
  if (products.size() < 2) return false;
  const Node& first = g.node(products[0]);
  const std::vector<NodeId> all = ProductsBeside(g, products[0]);
  if (first.op == Op::kQuantizedLinear &&
      (all.size() > kMostBeside || !quant::IsInt8(g.value(first.input(0)).type.dtype)))
    return false;
  return std::ranges::all_of(products, [&](NodeId id) { return std::ranges::contains(all, id); });
}

}  // namespace octavo::ir
