#include "octavo/ir/subgraph.h"

#include <algorithm>

namespace octavo::ir {

size_t CapturesOf(const Node& node) {
  return std::min(node.inputs.size(), static_cast<size_t>(std::max<int64_t>(node.attrs.Int("octavo_captures", 0), 0)));
}

Type TypeOfBodyInput(const Graph& graph, const Node& node, const Graph& body, size_t i) {
  const size_t captures = CapturesOf(node), from_end = body.inputs().size() - i;
  const auto type = [&graph](ValueId v) { return v.valid() ? graph.value(v).type : Type{}; };
  if (from_end <= captures) return type(node.inputs[node.inputs.size() - from_end]);
  Type known = body.value(body.inputs()[i]).type;
  if (node.op != Op::kLoop && node.op != Op::kScan) return known;  // FlexAttention gives scores, no operand of its own
  const size_t first = std::min<size_t>(node.op == Op::kLoop ? 2 : 0, node.inputs.size() - captures);
  const size_t own = node.inputs.size() - captures - first;
  const size_t scans = std::min(own, static_cast<size_t>(std::max<int64_t>(node.attrs.Int("num_scan_inputs", 0), 0)));
  if (i < first || i - first >= own - scans) return known;
  if (node.output(i - first).valid()) known = type(node.output(i - first));
  if (known.dtype == DType::kUndefined) known.dtype = type(node.input(i)).dtype;
  return known;
}

}  // namespace octavo::ir
