// packed: Q, K and V of one projection are consecutive columns of it, and are taken apart there.
// Before: y [B,S,3*H*D] -> Reshape [B,S,3,H,D] -> Transpose 2,0,3,1,4 -> Gather 0, 1, 2                              (ViT, Swin)
// After:  Split(y, last axis) -> Reshape [B,S,H,D] -> Transpose 0,2,1,3 each
// Before: y = x W + b -> Reshape [B,S,H,3,D] -> Gather 0, 1, 2 of axis 3          (BLOOM; NeoX: [B,S,H,3*D], Falcon: groups)
// After:  the same of y' = x W' + b', W' the columns of W with those of Q first, then K's, then V's
// Exact: columns of a product do not depend on each other, and a projection that is read by nothing else may write them in any
// order. Untouched: a projection with other readers, parts that overlap or leave something out, weights that are no constants, and
// heads of which a part is turned: Concat(rotary of x[..., :r], x[..., r:]) is whole heads again, and the runtime has it in one step.
#include <algorithm>
#include <cstring>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

// `length` indices from `start` of one axis of the unpacked shape; `drop`: the axis goes.
struct Part {
  ValueId out;
  int64_t axis = 0, start = 0, length = 1;
  bool drop = false;
  Ints perm;  // of a Transpose before the selection; empty: none
};

void ReadSplit(const Graph& g, const Node& n, int64_t axis, int64_t size, std::vector<Part>* parts) {
  Ints sizes = ConstInts(g, n.input(1)).value_or(Ints{});
  const auto count = static_cast<int64_t>(n.outputs.size());
  if (!n.input(1).valid() && count > 0) {
    const int64_t each = (size + count - 1) / count;
    for (int64_t i = 0; i < count; ++i) sizes.push_back(std::min(each, size - i * each));
  }
  if (sizes.size() != n.outputs.size()) return;
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (n.outputs[i].valid()) parts->push_back({n.outputs[i], axis, start, sizes[i], false, {}});
    start += sizes[i];
  }
}

// What n selects of its first input; empty: it is no selection along one axis by constants.
std::vector<Part> PartsOf(const Graph& g, const Node& n) {
  std::vector<Part> parts;
  const SymShape* in = ShapeOf(g, n.input(0));
  if (in == nullptr) return parts;
  const auto rank = static_cast<int64_t>(in->size());
  const auto at = [&](int64_t axis) { return axis < 0 ? axis + rank : axis; };
  const auto size = [&](int64_t axis) {
    return axis >= 0 && axis < rank && (*in)[static_cast<size_t>(axis)].is_number()
               ? (*in)[static_cast<size_t>(axis)].number()
               : -1;
  };
  if (n.op == Op::kSplit) {
    const int64_t axis = at(n.attrs.Int("axis", 0));
    if (size(axis) > 0) ReadSplit(g, n, axis, size(axis), &parts);
  } else if (n.op == Op::kGather) {
    const int64_t axis = at(n.attrs.Int("axis", 0)), index_rank = RankOf(g, n.input(1));
    const auto index = ConstInts(g, n.input(1));
    if (size(axis) <= 0 || !index || index->size() != 1 || index_rank > 1) return parts;
    const int64_t i = (*index)[0] < 0 ? (*index)[0] + size(axis) : (*index)[0];
    parts.push_back({n.output(), axis, i, 1, index_rank == 0, {}});
  } else if (n.op == Op::kSlice) {
    const auto from = ConstInts(g, n.input(1)), to = ConstInts(g, n.input(2)), axes = ConstInts(g, n.input(3));
    const auto steps = n.input(4).valid() ? ConstInts(g, n.input(4)) : Ints{1};
    if (!from || !to || !axes || !steps || from->size() != 1 || axes->size() != 1 || (*steps)[0] != 1) return parts;
    const int64_t axis = at((*axes)[0]), n_axis = size(axis);
    if (n_axis <= 0) return parts;
    const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n_axis : i, 0, n_axis); };
    const int64_t a = clamp((*from)[0]), b = clamp((*to)[0]);
    if (a < b) parts.push_back({n.output(), axis, a, b - a, false, {}});
  }
  return parts;
}

// All that reads v, as selections of it; empty: something else reads it.
std::vector<Part> Readers(const Graph& g, ValueId v, bool through_transpose) {
  std::vector<Part> parts;
  if (g.IsGraphOutput(v)) return {};
  for (const ir::Use& u : g.value(v).uses) {
    const Node& n = g.node(u.node);
    if (u.slot != 0) return {};
    std::vector<Part> more;
    if (n.op == Op::kTranspose && through_transpose) {
      more = Readers(g, n.output(), false);
      const Ints perm = PermOf(n, RankOf(g, v));
      for (Part& p : more) {
        p.axis = perm[static_cast<size_t>(p.axis)];
        p.perm = perm;
      }
    } else {
      more = PartsOf(g, n);
    }
    if (more.empty()) return {};
    parts.insert(parts.end(), more.begin(), more.end());
  }
  return parts;
}

// The sizes of one unpacking: y's last axis is [before, packed, after].
struct Unpacking {
  size_t lead = 0;  // dims of y that stay in front
  int64_t before = 1, packed = 1, after = 1;
};

std::optional<Unpacking> SizesOf(const SymShape& y, const SymShape& r, int64_t axis) {
  Unpacking u{.lead = y.size() - 1};
  if (y.empty() || r.size() < y.size() + 1 || axis < static_cast<int64_t>(u.lead)) return {};
  for (size_t i = 0; i < u.lead; ++i) {
    if (!ProvablyEqual(y[i], r[i])) return {};
  }
  for (size_t i = u.lead; i < r.size(); ++i) {
    if (!r[i].is_number()) return {};
    (static_cast<int64_t>(i) < axis ? u.before : static_cast<int64_t>(i) == axis ? u.packed : u.after) *= r[i].number();
  }
  return u;
}

// Sorted, each range once; false where ranges overlap or leave something out.
bool Ranges(const std::vector<Part>& parts, int64_t size, std::vector<std::pair<int64_t, int64_t>>* ranges) {
  for (const Part& p : parts) ranges->emplace_back(p.start, p.length);
  std::sort(ranges->begin(), ranges->end());
  ranges->erase(std::unique(ranges->begin(), ranges->end()), ranges->end());
  int64_t at = 0;
  for (const auto& [start, length] : *ranges) {
    if (start != at) return false;
    at += length;
  }
  return at == size && ranges->size() >= 2;
}

Tensor TakeColumns(const Tensor& t, const Ints& columns) {
  const auto n = static_cast<int64_t>(columns.size());
  const size_t bytes = static_cast<size_t>(quant::BitsOf(t.dtype())) / 8;
  Tensor out = Tensor::Empty(t.dtype(), t.shape());
  const int64_t rows = n == 0 ? 0 : t.size() / n;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      std::memcpy(out.mutable_data() + static_cast<size_t>(r * n + c) * bytes,
                  t.data() + static_cast<size_t>(r * n + columns[static_cast<size_t>(c)]) * bytes, bytes);
    }
  }
  return out;
}

// The nodes whose constant has a column for each of y's: MatMul and, where there is one, Add. Empty: y is no plain projection.
std::vector<NodeId> Projection(const Graph& g, ValueId y, int64_t columns) {
  std::vector<NodeId> nodes;
  for (int i = 0; i < 2; ++i) {
    const Node* n = g.Producer(y);
    if (n == nullptr || (n->op != Op::kMatMul && n->op != Op::kAdd) || !g.HasOneUse(y)) return {};
    const Tensor* c = g.ConstantOf(n->input(1));
    if (c == nullptr || c->rank() != (n->op == Op::kMatMul ? 2 : 1) || c->shape().back() != columns) return {};
    if (!IsPlainFloat(c->dtype())) return {};
    nodes.push_back(g.value(y).producer);
    if (n->op == Op::kMatMul) return nodes;
    y = n->input(0);
  }
  return {};
}

// Whether v is made of `part`, by at most as many nodes as a rotary embedding has.
bool IsMadeOf(const Graph& g, ValueId v, ValueId part) {
  constexpr size_t kNodesOfRotation = 16;
  std::vector<ValueId> work{v};
  for (size_t i = 0; i < work.size() && i < 2 * kNodesOfRotation; ++i) {
    if (work[i] == part) return true;
    const Node* n = g.Producer(work[i]);
    if (n != nullptr) work.insert(work.end(), n->inputs.begin(), n->inputs.end());
  }
  return false;
}

// The second of two parts goes behind what is made of the first, as the columns that a rotary embedding of a part leaves.
bool AreOneHead(const Graph& g, const std::vector<Part>& parts, int64_t size) {
  const auto rest = std::ranges::find_if(parts, [&](const Part& p) { return p.start + p.length == size; });
  if (parts.size() < 2 || rest == parts.end() || rest->start == 0 || !g.HasOneUse(rest->out)) return false;
  const ir::Use use = g.value(rest->out).uses[0];
  const Node& concat = g.node(use.node);
  const SymShape* whole = ShapeOf(g, concat.output());
  if (concat.op != Op::kConcat || concat.inputs.size() != 2 || use.slot != 1 || whole == nullptr) return false;
  const auto last = static_cast<int64_t>(whole->size()) - 1;
  const int64_t axis = concat.attrs.Int("axis", 0);
  if ((axis != last && axis != -1) || !ProvablyEqual(whole->back(), Dim(size))) return false;
  const ValueId first = concat.input(0);
  return std::ranges::any_of(parts, [&](const Part& p) { return p.start == 0 && IsMadeOf(g, first, p.out); });
}

// Columns in the order of the ranges, heads in order within each.
Ints ColumnOrder(const Unpacking& u, const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  Ints order;
  for (const auto& [start, length] : ranges) {
    for (int64_t a = 0; a < u.before; ++a) {
      for (int64_t i = (a * u.packed + start) * u.after; i < (a * u.packed + start + length) * u.after; ++i)
        order.push_back(i);
    }
  }
  return order;
}

// The part [its shape] of the piece of y that holds it.
void Replace(Rewriter& rw, const Part& p, ValueId piece, const SymShape& unpacked) {
  SymShape shape = unpacked;
  const auto axis = static_cast<size_t>(p.axis);
  shape[axis] = Dim(p.length);
  Ints perm = p.perm;
  if (p.drop) {
    shape.erase(shape.begin() + p.axis);
    std::erase(perm, p.axis);
    for (int64_t& i : perm) i -= i > p.axis ? 1 : 0;
  }
  ValueId v = MakeReshape(rw, piece, shape);
  if (!perm.empty() && !IsIdentityPerm(perm)) v = MakeTranspose(rw, v, perm);
  rw.Replace(p.out, v);
}

bool Unpack(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const ValueId y = n.input(0), r = n.output();
  const SymShape *from = ShapeOf(g, y), *to = ShapeOf(g, r);
  if (from == nullptr || to == nullptr || to->size() <= from->size()) return false;
  const std::vector<Part> parts = Readers(g, r, true);
  if (parts.size() < 2) return false;
  for (const Part& p : parts) {
    if (p.axis != parts[0].axis) return false;
  }
  const auto u = SizesOf(*from, *to, parts[0].axis);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  if (!u || !Ranges(parts, u->packed, &ranges)) return false;
  if (AreOneHead(g, parts, u->packed)) return false;
  const SymShape unpacked = *to;
  if (u->before != 1) {
    const std::vector<NodeId> nodes = Projection(g, y, u->before * u->packed * u->after);
    if (nodes.empty()) return false;
    const Ints order = ColumnOrder(*u, ranges);
    for (NodeId node : nodes) {
      rw.At(node, {node});
      const NodeId old = g.value(g.node(node).input(1)).producer;
      rw.SetInput(node, 1, rw.Constant(TakeColumns(*g.ConstantOf(g.node(node).input(1)), order)));
      rw.EraseDead(old);
    }
  }
  rw.At(id, {id});
  Ints sizes;
  for (const auto& range : ranges) sizes.push_back(range.second * u->before * u->after);
  const NodeId split =
      rw.CreateN(Op::kSplit, {y, MakeInts(rw, sizes)}, sizes.size(), {{"axis", static_cast<int64_t>(u->lead)}});
  SymShape piece = *ShapeOf(g, y);
  for (size_t i = 0; i < sizes.size(); ++i) {
    piece.back() = Dim(sizes[i]);
    rw.graph().SetType(g.node(split).output(i), Type{DTypeOf(g, y), piece});
  }
  for (const Part& p : parts) {
    const auto which = std::find(ranges.begin(), ranges.end(), std::pair(p.start, p.length)) - ranges.begin();
    const NodeId old = g.value(p.out).producer;
    Replace(rw, p, g.node(split).output(static_cast<size_t>(which)), unpacked);
    if (g.IsAlive(old)) rw.EraseDead(old);
  }
  return true;
}

}  // namespace

Result<bool> Packed(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "packed");
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id) && graph.node(id).op == Op::kReshape) Unpack(rw, id);
  }
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("packed made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
