// Tied embeddings: where the head's codes are those of the token table, it reads them.
// Before: Gather(T [V,d], ids)   QuantizedLinear(x, .., W [d,V], ..), W = T turned, code for code
// After:  Gather(T, ids)         QuantizedLinear(x, .., Transpose(T), ..)
// The same bits: one constant in the file instead of two. A run folds the Transpose when it compiles.
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

constexpr size_t kWeightSlot = 3;

// The constant s8 matrix that a node reads in this slot; null: something else.
const Tensor* Matrix(const Graph& g, const Node& n, size_t slot) {
  const Tensor* t = g.ConstantOf(n.input(slot));
  return t != nullptr && t->dtype() == DType::kS8 && t->rank() == 2 ? t : nullptr;
}

bool AreTurned(const Tensor& table, const Tensor& w) {
  const int64_t rows = table.shape()[0], columns = table.shape()[1];
  if (w.shape() != ir::Shape{columns, rows}) return false;
  const int8_t *from = table.as<int8_t>().data(), *to = w.as<int8_t>().data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) {
      if (from[row * columns + i] != to[i * rows + row]) return false;
    }
  }
  return true;
}

}  // namespace

bool TieTables(Graph& g) {
  Rewriter b(g, "quantize_tables");
  for (const NodeId id : g.NodesInOrder()) {
    if (!g.IsAlive(id)) continue;
    const Tensor* w = g.node(id).op == Op::kQuantizedLinear ? Matrix(g, g.node(id), kWeightSlot) : nullptr;
    if (w == nullptr) continue;
    for (const NodeId gather : g.NodesInOrder()) {
      const Tensor* table = g.node(gather).op == Op::kGather ? Matrix(g, g.node(gather), 0) : nullptr;
      if (table == nullptr || !AreTurned(*table, *w)) continue;
      const ValueId old = g.node(id).input(kWeightSlot);
      b.At(id, {id});
      b.SetInput(id, kWeightSlot,
                 b.Create(Op::kTranspose, {g.node(gather).input(0)}, {{"perm", std::vector<int64_t>{1, 0}}}));
      if (g.value(old).uses.empty()) b.EraseDead(g.value(old).producer);
      break;
    }
  }
  return b.changed();
}

}  // namespace octavo::passes::quantize
