#include "octavo/runtime/hoist.h"

#include <algorithm>
#include <set>
#include <vector>

#include "octavo/runtime/rotary_chain.h"
#include "octavo/runtime/write_rows.h"

namespace octavo::runtime {

namespace {

using ir::NodeId;

bool IsProduct(Op op) { return op == Op::kLinearBlocked || op == Op::kQuantizedLinear || op == Op::kQuantizedQkv; }

// Takes long, or holds much memory.
bool IsLarge(Op op) {
  constexpr Op kLarge[] = {Op::kMatMul,        Op::kGemm, Op::kConv, Op::kSdpa,
                           Op::kQuantizedSdpa, Op::kIf,   Op::kLoop, Op::kScan};
  return IsProduct(op) || std::ranges::contains(kLarge, op);
}

std::vector<ValueId> WantedEarly(const CompileContext& c) {
  std::vector<ValueId> wanted;
  for (const NodeId id : c.graph.NodesInOrder()) {
    const Node& n = c.graph.node(id);
    size_t first = n.inputs.size();
    if (n.op == Op::kRotaryEmbedding) first = 1;
    if (n.op == Op::kCacheAppend || n.op == Op::kTensorScatter) first = 2;
    for (size_t i = first; i < n.inputs.size(); ++i) wanted.push_back(n.input(i));
  }
  for (const Chain& chain : FindWrittenRows(c)) {
    for (const NodeId id : chain.nodes) {
      if (c.graph.node(id).op == Op::kScatterND) wanted.push_back(c.graph.node(id).input(1));
    }
  }
  for (const Chain& chain : FindRotaryChains(c))
    wanted.insert(wanted.end(), chain.inputs.begin() + 1, chain.inputs.end());
  return wanted;
}

}  // namespace

void HoistOperandsOfHeads(const CompileContext& c, Graph& graph) {
  const std::vector<NodeId> order = graph.NodesInOrder();
  const auto front = std::ranges::find_if(order, [&](NodeId id) { return IsProduct(graph.node(id).op); });
  if (front == order.end()) return;
  for (const ValueId wanted : WantedEarly(c)) {
    std::set<NodeId> later;  // of what it depends on
    std::vector<ValueId> work{wanted};
    bool fits = true;
    while (fits && !work.empty()) {
      const ValueId v = work.back();
      work.pop_back();
      const NodeId id = v.valid() ? graph.value(v).producer : NodeId{};
      if (!id.valid() || graph.Before(id, *front) || !later.insert(id).second) continue;
      fits = !IsLarge(graph.node(id).op);
      work.insert(work.end(), graph.node(id).inputs.begin(), graph.node(id).inputs.end());
    }
    if (!fits) continue;
    std::vector<NodeId> nodes(later.begin(), later.end());
    std::ranges::sort(nodes, [&](NodeId a, NodeId b) { return graph.Before(a, b); });
    for (const NodeId id : nodes) graph.MoveBefore(id, *front);
  }
}

}  // namespace octavo::runtime
