// Tied embeddings: where the head's codes are those of the token table, it reads them.
// Before: Gather(T [V,d], ids)   QuantizedLinear(x, .., W [d,V], ..), W = T turned, code for code
// After:  Gather(T, ids)         QuantizedLinear(x, .., Transpose(T), ..)
// The same bits: one constant in the file instead of two. A run folds the Transpose when it compiles.
#include "octavo/passes/quantize/tied.h"

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

template <typename T>
bool AreTurnedOf(const Tensor& table, const Tensor& w) {
  const int64_t rows = table.shape()[0], columns = table.shape()[1];
  const T *from = table.as<T>().data(), *to = w.as<T>().data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) {
      if (from[row * columns + i] != to[i * rows + row]) return false;
    }
  }
  return true;
}

}  // namespace

bool AreTurned(const Tensor& table, const Tensor& w) {
  if (table.dtype() != w.dtype() || w.shape() != ir::Shape{table.shape()[1], table.shape()[0]}) return false;
  return table.dtype() == DType::kS8 ? AreTurnedOf<int8_t>(table, w) : AreTurnedOf<float>(table, w);
}

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
