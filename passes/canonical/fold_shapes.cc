// fold, third part: shapes computed at run time from symbolic dims.
// Before: Reshape(x [batch,seq,384], Concat(batch, seq, -1, 32))   After: Reshape(x, [0,0,12,32])
// Before: Expand(x [batch,1,8,32], Concat(batch, 4, 8, 32))        After: Expand(x, [1,4,1,1])
// A single dim that cannot be written as a copy or a number becomes -1. That is the same size whenever the graph runs
// at all, but for empty tensors, where ONNX calls -1 ambiguous.
#include "octavo/passes/canonical/fold.h"

namespace octavo::passes::canonical {

bool FoldReshapeTarget(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kReshape && n.op != Op::kFlatten) return false;
  const SymShape* in = ShapeOf(g, n.input(0));
  const SymShape* out = ShapeOf(g, n.output());
  if (in == nullptr || out == nullptr) return false;
  const auto target = ReshapeTarget(*in, *out);
  if (!target) return false;
  if (n.op == Op::kReshape && ConstInts(g, n.input(1)) == target && n.attrs.empty()) return false;
  const ValueId shape = MakeInts(rw, *target);
  ReplaceNode(rw, id, Make(rw, Op::kReshape, {n.input(0), shape}, {}, TypeOf(g, n.output())));
  return true;
}

bool FoldExpandTarget(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kExpand) return false;
  const SymShape* in = ShapeOf(g, n.input(0));
  const SymShape* out = ShapeOf(g, n.output());
  if (in == nullptr || out == nullptr || in->size() > out->size()) return false;
  Ints target(out->size());
  const size_t shift = out->size() - in->size();
  for (size_t j = 0; j < out->size(); ++j) {
    const bool same = j >= shift && ProvablyEqual((*in)[j - shift], (*out)[j]);
    if (!same && !(*out)[j].is_number()) return false;
    target[j] = same ? 1 : (*out)[j].number();
  }
  if (ConstInts(g, n.input(1)) == target) return false;
  const NodeId old = g.value(n.input(1)).producer;
  rw.SetInput(id, 1, MakeInts(rw, target));
  if (old.valid()) rw.EraseDead(old);
  return true;
}

namespace {

// The graph input and axis that carry the dim, first in the graph's order.
std::optional<std::pair<ValueId, int64_t>> InputWithDim(const Graph& g, const Dim& dim) {
  if (dim.symbol().empty()) return {};
  for (ValueId v : g.inputs()) {
    const SymShape* s = ShapeOf(g, v);
    for (size_t i = 0; s != nullptr && i < s->size(); ++i) {
      if (ProvablyEqual((*s)[i], dim)) return std::pair{v, static_cast<int64_t>(i)};
    }
  }
  return {};
}

}  // namespace

bool RootShapeAtInput(Rewriter& rw, NodeId id, const ir::Inference& inference) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  // Arithmetic on one dim (12*seq) keeps its form; only plain reads of a dim are moved.
  if (n.op != Op::kGather && n.op != Op::kShape && n.op != Op::kSlice && n.op != Op::kSqueeze && n.op != Op::kReshape &&
      n.op != Op::kUnsqueeze) {
    return false;
  }
  const ValueId y = n.output();
  const ir::SymContents* contents = y.valid() ? inference.Contents(y) : nullptr;
  if (contents == nullptr || contents->size() != 1 || DTypeOf(g, y) != DType::kS64) return false;
  const int64_t rank = RankOf(g, y);
  const auto source = rank == 0 || rank == 1 ? InputWithDim(g, contents->front()) : std::nullopt;
  if (!source) return false;
  // Canonical already: Shape(input, one dim), or Squeeze of it for a scalar.
  const auto is_read = [&](ValueId v) {
    const Node* p = g.Producer(v);
    return p != nullptr && p->op == Op::kShape && p->input(0) == source->first &&
           p->attrs.Int("start", -1) == source->second && p->attrs.Int("end", -1) == source->second + 1;
  };
  if (rank == 1 ? is_read(y) : n.op == Op::kSqueeze && !n.input(1).valid() && is_read(n.input(0))) return false;
  ValueId dim = Make(rw, Op::kShape, {source->first}, Attrs{{"start", source->second}, {"end", source->second + 1}},
                     Type{DType::kS64, SymShape{1}});
  if (rank == 0) dim = Make(rw, Op::kSqueeze, {dim}, {}, Type{DType::kS64, SymShape{}});
  ReplaceNode(rw, id, dim);
  return true;
}

}  // namespace octavo::passes::canonical
