#include "octavo/runtime/by_heads.h"

#include <algorithm>
#include <vector>

namespace octavo::runtime {

const Node* OnlyReader(const Graph& g, ValueId v, Op op, ir::NodeId* id) {
  if (!v.valid() || g.IsGraphOutput(v) || g.value(v).uses.size() != 1) return nullptr;
  const ir::Use use = g.value(v).uses[0];
  const Node& reader = g.node(use.node);
  *id = use.node;
  return reader.op == op && use.slot == 0 && reader.output().valid() ? &reader : nullptr;
}

Shape PlaceOutput(const std::optional<ByHeads>& by_heads, const Shape& x, int64_t n, kernels::GemmOutput* y) {
  y->stride = n;
  Shape shape = x;
  shape.back() = n;
  if (!by_heads) return shape;
  const int64_t batch = x[0], rows = x[1], heads = by_heads->heads, size = by_heads->size;
  y->stride = size;
  y->heads = {.size = size, .head_stride = rows * size, .rows = std::max<int64_t>(rows, 1), .batch_stride = rows * n};
  return Shape{batch, heads, rows, size};
}

std::optional<ByHeads> HeadsOf(const Graph& g, ValueId v, ValueId reshaped) {
  const auto& from = g.value(v).type.shape;
  const auto& to = g.value(reshaped).type.shape;
  if (!from || !to || from->size() != 3 || to->size() != 4) return std::nullopt;
  const ir::SymShape rows_from{(*from)[0], (*from)[1]}, rows_to{(*to)[0], (*to)[1]};
  if (!ir::ProvablyEqual(rows_from, rows_to) || !(*to)[2].is_number() || !(*to)[3].is_number()) return std::nullopt;
  const ByHeads found{.heads = (*to)[2].number(), .size = (*to)[3].number(), .reshape = {}, .transpose = {}};
  return found.heads > 0 && found.size > 0 ? std::optional(found) : std::nullopt;
}

std::optional<ByHeads> FindByHeads(const Graph& g, const Node& node, size_t i) {
  const bool stores = node.op == Op::kQuantizedQkv || node.op == Op::kLinearBlocked ||
                      (node.op == Op::kQuantizedLinear && !node.input(9).valid());
  if (!stores) return std::nullopt;
  ir::NodeId reshape_id, transpose_id;
  const Node* reshape = OnlyReader(g, node.outputs[i], Op::kReshape, &reshape_id);
  if (reshape == nullptr) return std::nullopt;
  const Node* transpose = OnlyReader(g, reshape->output(), Op::kTranspose, &transpose_id);
  if (transpose == nullptr || transpose->attrs.Ints("perm") != std::vector<int64_t>{0, 2, 1, 3}) return std::nullopt;
  std::optional<ByHeads> found = HeadsOf(g, node.outputs[i], reshape->output());
  if (found) found->reshape = reshape_id, found->transpose = transpose_id;
  return found;
}

}  // namespace octavo::runtime
