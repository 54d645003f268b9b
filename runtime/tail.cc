#include "octavo/runtime/tail.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

namespace octavo::runtime {

namespace {

// All that reads v lies in the chain.
bool IsReadInside(const Graph& g, ValueId v, const Chain& chain) {
  return !g.IsGraphOutput(v) && std::ranges::all_of(g.value(v).uses, [&](const ir::Use& use) {
    return std::ranges::contains(chain.nodes, use.node);
  });
}

std::optional<Chain> ChainBehind(const CompileContext& c, ValueId v, const ChainsByNode& chains) {
  const auto& uses = c.graph.value(v).uses;
  if (uses.empty()) return {};
  const auto it = chains.find(uses[0].node);
  if (it == chains.end()) return ChainOf(c, uses[0].node);
  return it->second->is_element_wise() ? std::optional(*it->second) : std::nullopt;
}

}  // namespace

bool IsThereBefore(const Graph& g, ValueId v, ir::NodeId node) {
  const ir::NodeId producer = g.value(v).producer;
  return !producer.valid() || g.Before(producer, node);
}

std::vector<Chain> FindTails(const CompileContext& c, std::span<const ir::NodeId> products,
                             const ChainsByNode& chains) {
  const Graph& g = c.graph;
  std::vector<ValueId> made;
  for (const ir::NodeId id : products) made.push_back(g.node(id).outputs[0]);
  std::vector<Chain> found;
  for (const ValueId v : made) {
    std::optional<Chain> chain = ChainBehind(c, v, chains);
    const auto same = [&](const Chain& other) { return other.nodes == chain->nodes; };
    if (!chain || std::ranges::any_of(found, same)) continue;
    const bool fits = std::ranges::all_of(chain->inputs, [&](ValueId in) {
      return std::ranges::contains(made, in) ? IsReadInside(g, in, *chain) : IsThereBefore(g, in, products[0]);
    });
    if (fits) found.push_back(std::move(*chain));
  }
  return found;
}

}  // namespace octavo::runtime
