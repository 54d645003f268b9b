// repeat: heads are repeated in one way, Reshape(Expand(Unsqueeze(k [B,G,S,D], 2), [.,.,R,.,.]), [B,G*R,S,D]).
// Before: Tile(k [B,G,1,S,D], [1,1,R,1,1])             After: Expand(k, [1,1,R,1,1])
// Before: Concat(k, k, k; axis 2) of k [B,G,1,S,D]     After: Expand(k, [1,1,3,1,1])
// Before: Gather(k [B,G,S,D], [0,0,1,1], axis 1)       After: Reshape(Expand(Unsqueeze(k, 2), [1,1,2,1,1]))
// Exact: elements are copied to the same places. Untouched: Tile and Concat of axes that are not 1 (they interleave otherwise), a
// Gather that does not take every index equally often in order.
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

SymShape Widened(SymShape s, const Ints& times) {
  for (size_t i = 0; i < s.size(); ++i) s[i] = s[i] * Dim(times[i]);
  return s;
}

bool TileToExpand(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* in = ShapeOf(g, n.input(0));
  const auto times = ConstInts(g, n.input(1));
  if (in == nullptr || !times || times->size() != in->size()) return false;
  for (size_t i = 0; i < in->size(); ++i) {
    if ((*times)[i] < 1 || ((*times)[i] != 1 && !IsNumber((*in)[i], 1))) return false;
  }
  const Type type{DTypeOf(g, n.input(0)), Widened(*in, *times)};
  ReplaceNode(rw, id, Make(rw, Op::kExpand, {n.input(0), MakeInts(rw, *times)}, {}, type));
  return true;
}

bool ConcatToExpand(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* in = ShapeOf(g, n.input(0));
  if (in == nullptr || n.inputs.size() < 2) return false;
  for (ValueId v : n.inputs) {
    if (v != n.input(0)) return false;
  }
  int64_t axis = n.attrs.Int("axis", 0);
  axis += axis < 0 ? static_cast<int64_t>(in->size()) : 0;
  if (axis < 0 || axis >= static_cast<int64_t>(in->size()) || !IsNumber((*in)[static_cast<size_t>(axis)], 1))
    return false;
  if (ConstInts(g, n.input(0)) || in->size() < 2) return false;  // shape vectors are `fold`'s
  Ints times(in->size(), 1);
  times[static_cast<size_t>(axis)] = static_cast<int64_t>(n.inputs.size());
  const Type type{DTypeOf(g, n.input(0)), Widened(*in, times)};
  ReplaceNode(rw, id, Make(rw, Op::kExpand, {n.input(0), MakeInts(rw, times)}, {}, type));
  return true;
}

bool GatherToExpand(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* in = ShapeOf(g, n.input(0));
  const SymShape* out = ShapeOf(g, n.output());
  if (in == nullptr || out == nullptr || in->size() != 4 || out->size() != 4 || !(*in)[1].is_number()) return false;
  const auto index = ConstInts(g, n.input(1));
  const int64_t axis = n.attrs.Int("axis", 0), heads = (*in)[1].number();
  if (!index || (axis != 1 && axis != -3) || heads <= 0) return false;
  const auto count = static_cast<int64_t>(index->size());
  const int64_t times = count / heads;
  if (times < 2 || times * heads != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    if ((*index)[static_cast<size_t>(i)] != i / times) return false;
  }
  const DType dtype = DTypeOf(g, n.input(0));
  const SymShape five{(*in)[0], (*in)[1], Dim(1), (*in)[2], (*in)[3]}, result = *out;
  const Ints wide{1, 1, times, 1, 1};
  const ValueId x = Make(rw, Op::kUnsqueeze, {n.input(0), MakeInts(rw, {2})}, {}, Type{dtype, five});
  const ValueId e = Make(rw, Op::kExpand, {x, MakeInts(rw, wide)}, {}, Type{dtype, Widened(five, wide)});
  ReplaceNode(rw, id, MakeReshape(rw, e, result));
  return true;
}

}  // namespace

Result<bool> Repeat(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "repeat");
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id)) continue;
    rw.At(id, {id});
    const Op op = graph.node(id).op;
    if (op == Op::kTile) TileToExpand(rw, id);
    if (op == Op::kConcat) ConcatToExpand(rw, id);
    if (op == Op::kGather) GatherToExpand(rw, id);
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
