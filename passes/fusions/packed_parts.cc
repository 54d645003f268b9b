#include "octavo/passes/fusions/packed_parts.h"

#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

std::vector<int64_t> WidthsOf(const Graph& g, const Node& split) {
  if (split.outputs.size() < 2 || split.outputs.size() > 8) return {};
  // What a file declares of parts whose sizes a run decides may be false.
  if (split.input(1).valid() && g.ConstantOf(split.input(1)) == nullptr) return {};
  const auto& shape = g.value(split.input(0)).type.shape;
  std::vector<int64_t> widths;
  if (!shape) return {};
  const auto rank = static_cast<int64_t>(shape->size());
  const int64_t axis = split.attrs.Int("axis", 0);
  if (axis != -1 && axis != rank - 1) return {};
  for (ValueId v : split.outputs) {
    if (!v.valid()) return {};
    const auto& part = g.value(v).type.shape;
    if (!part || part->empty() || !part->back().is_number() || part->back().number() < 1) return {};
    widths.push_back(part->back().number());
  }
  return widths;
}

const Node* QuantizeBehind(const Graph& g, ValueId v, bool fp8) {
  if (!g.HasOneUse(v)) return nullptr;
  const Node& q = g.node(g.value(v).uses.front().node);
  if (q.op != Op::kQuantizeLinear || q.input(0) != v || q.attrs.Int("saturate", 1) == 0) return nullptr;
  if (!HasScalarParams(g, q)) return nullptr;
  const ir::DType codes = g.value(q.output()).type.dtype;
  return quant::IsCode8(codes) && (!fp8 || quant::IsFp8(codes)) ? &q : nullptr;
}

}  // namespace octavo::passes::fusions
