// Tied embeddings in blocks: where the head's codes say the token table to half a step, lookups read them.
// Before: Gather(T [V,d], ids)   MatMul(x, DequantizeLinear(W [d,V], s [d/64,V]))   W s8
// After:  DequantizeLinear(Gather(W', ids), Gather(s', ids))   MatMul(x, Transpose(DequantizeLinear(W' [V,d], s' [V,d/64])))
// One constant in the file instead of two, and a row has a scale for each block instead of one. Not codes of 4 bits: the table keeps its 8.
#include <algorithm>
#include <cmath>
#include <optional>

#include "octavo/ir/mapped.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/tied.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

struct Head {
  NodeId dequantize, product;
  const Tensor *codes = nullptr, *scales = nullptr;  // [d,V], [d/block,V]
  int64_t block = 0;
};

std::optional<Head> HeadAt(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  if (n.op != Op::kDequantizeLinear || n.attrs.Int("axis", 1) != 0 || n.input(2).valid()) return {};
  Head h{.dequantize = id, .product = {}, .codes = g.ConstantOf(n.input(0)), .scales = g.ConstantOf(n.input(1))};
  h.block = n.attrs.Int("block_size", 0);
  if (h.codes == nullptr || h.scales == nullptr || h.codes->dtype() != DType::kS8 || h.codes->rank() != 2) return {};
  if (h.block < 1 || h.codes->shape()[0] % h.block != 0 || h.scales->dtype() != DType::kF32) return {};
  if (h.scales->shape() != ir::Shape{h.codes->shape()[0] / h.block, h.codes->shape()[1]}) return {};
  if (!g.HasOneUse(n.output())) return {};
  const ir::Use use = g.value(n.output()).uses.front();
  h.product = use.node;
  return g.node(use.node).op == Op::kMatMul && use.slot == 1 ? std::optional(h) : std::nullopt;
}

// [a,b] as [b,a], in pieces that a cache holds.
template <class T>
Tensor Turned(const Tensor& t) {
  constexpr int64_t kPiece = 64;
  const int64_t rows = t.shape()[0], columns = t.shape()[1];
  Tensor out = Tensor::Empty(t.dtype(), {columns, rows});
  const T* from = t.as<T>().data();
  T* to = out.mutable_as<T>().data();
  for (int64_t first = 0; first < columns; first += kPiece) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = first; c < std::min(first + kPiece, columns); ++c) to[c * rows + r] = from[r * columns + c];
    }
  }
  return out;
}

// Each element of the table is within half a step of what the codes [V,d] and scales [V,d/block] of its row mean.
bool Say(const Tensor& codes, const Tensor& scales, int64_t block, const Tensor& table) {
  constexpr float kHalf = 0.5f + 1e-5f;  // of a quotient near 127, to the rounding of f32
  const auto q = codes.as<int8_t>();
  const auto t = table.as<float>(), s = scales.as<float>();
  for (size_t i = 0; i < t.size(); ++i) {
    const float scale = s[i / static_cast<size_t>(block)];
    if (!(std::abs(t[i] - static_cast<float>(q[i]) * scale) <= kHalf * scale)) return false;
  }
  return true;
}

// The first row alone: where it says another, the head is not turned for nothing.
bool MayBeTied(const Head& h, const Tensor& table) {
  const int64_t rows = h.codes->shape()[1], d = h.codes->shape()[0];
  if (table.shape() != ir::Shape{rows, d}) return false;
  for (int64_t i = 0; i < d; ++i) {
    const float scale = h.scales->as<float>()[static_cast<size_t>(i / h.block * rows)];
    const float code = static_cast<float>(h.codes->as<int8_t>()[static_cast<size_t>(i * rows)]);
    if (!(std::abs(table.as<float>()[static_cast<size_t>(i)] - code * scale) <= scale)) return false;
  }
  return true;
}

void Tie(Rewriter& b, const Head& h, const std::vector<NodeId>& lookups, ValueId codes, ValueId scales) {
  Graph& g = b.graph();
  b.At(h.product, {h.product});
  const ValueId dq = b.Create(Op::kDequantizeLinear, {codes, scales}, {{"axis", int64_t{1}}, {"block_size", h.block}});
  b.SetInput(h.product, 1, b.Create(Op::kTranspose, {dq}, {{"perm", std::vector<int64_t>{1, 0}}}));
  b.EraseDead(h.dequantize);
  for (const NodeId id : lookups) {
    const Node& n = g.node(id);
    const ValueId ids = n.input(1), old = n.output();
    b.At(id, {id});
    const auto rows = [&](ValueId of) { return b.Create(Op::kGather, {of, ids}, {{"axis", int64_t{0}}}); };
    const ValueId q = rows(codes), s = rows(scales);
    b.Replace(old, b.Create(Op::kDequantizeLinear, {q, s}, {{"axis", int64_t{-1}}, {"block_size", h.block}}));
    b.EraseDead(id);
  }
}

}  // namespace

bool TieBlocks(Graph& g, const std::vector<NodeId>& tables) {
  Rewriter b(g, "quantize_tables");
  for (const NodeId id : g.NodesInOrder()) {
    if (!g.IsAlive(id)) continue;
    const std::optional<Head> head = HeadAt(g, id);
    if (!head) continue;
    std::vector<NodeId> lookups;
    ValueId table;
    for (const NodeId lookup : tables) {
      if (!g.IsAlive(lookup) || !IsFloatTable(g, g.node(lookup))) continue;
      const ValueId t = g.node(lookup).input(0);
      if (t == table || (!table.valid() && MayBeTied(*head, *g.ConstantOf(t)))) table = t, lookups.push_back(lookup);
    }
    if (!table.valid() || g.value(table).uses.size() != lookups.size() || g.IsGraphOutput(table)) continue;
    const Tensor codes = Turned<int8_t>(*head->codes), scales = Turned<float>(*head->scales);
    if (!Say(codes, scales, head->block, *g.ConstantOf(table))) continue;
    ir::ForgetPages(*g.ConstantOf(table));
    b.At(id, {id});
    const std::string name = g.value(table).name;
    Tie(b, *head, lookups, b.Constant(codes, name + "_quantized"), b.Constant(scales, name + "_scale"));
  }
  return b.changed();
}

}  // namespace octavo::passes::quantize
