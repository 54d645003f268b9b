#include <algorithm>
#include <functional>

#include "octavo/ir/functions.h"
#include "octavo/passes/report.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes {

std::vector<FloatWeights> WeightsInFloat(const Graph& g) {
  constexpr size_t kLeast = 1024;
  std::vector<FloatWeights> all;
  for (NodeId id : g.NodesInOrder()) {
    if (g.node(id).op != Op::kConstant) continue;
    const ir::Tensor* t = g.ConstantOf(g.node(id).output());
    const auto& uses = g.value(g.node(id).output()).uses;
    if (t == nullptr || t->rank() < 2 || !quant::IsFloat(t->dtype()) || quant::IsFp8(t->dtype()) ||
        t->byte_size() < kLeast || uses.empty())
      continue;
    const Node& reader = g.node(uses[0].node);
    if (ir::HasBody(reader.op) || reader.op == Op::kDequantizeLinear) continue;  // scales
    const std::string op(reader.op == Op::kOpaque ? std::string_view(reader.op_type) : ir::InfoOf(reader.op).name);
    auto it = std::ranges::find(all, op, &FloatWeights::op);
    if (it == all.end()) it = all.insert(all.end(), {.op = op});
    ++it->weights;
    it->bytes += static_cast<int64_t>(t->byte_size());
  }
  std::ranges::stable_sort(all, std::greater(), &FloatWeights::bytes);
  return all;
}

}  // namespace octavo::passes
