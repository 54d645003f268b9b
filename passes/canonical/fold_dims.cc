// fold, fourth part: dims that nobody has a name for (a convolution over audio of any length), but that stay what they are.
// Before: h [b,?,32] -> MatMul -> Add = x; Reshape(x, Concat(b, Shape(h)[1], -1, 16))   After: Reshape(x, Concat(b, 0, -1, 16))
// Exact: dim 1 of x is dim 1 of h whatever it is, and 0 copies it. -1 can then be told: 32 / 16.
#include "octavo/passes/canonical/fold.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxDepth = 32;

struct DimAt {
  ValueId value;
  int64_t axis = 0;
  bool operator==(const DimAt&) const = default;
};

// The earliest value that has this dim, through ops that keep it.
DimAt OriginOf(const Graph& g, DimAt d, int depth);

std::optional<DimAt> Before(const Graph& g, DimAt d, int depth) {
  const Node* n = g.Producer(d.value);
  const int64_t rank = RankOf(g, d.value);
  if (n == nullptr || rank < 0 || depth <= 0) return {};
  switch (n->op) {
    case Op::kMatMul:
      if (RankOf(g, n->input(1)) == 2 && RankOf(g, n->input(0)) == rank && d.axis < rank - 1)
        return DimAt{n->input(0), d.axis};
      return {};
    case Op::kLayerNormalization:
    case Op::kRMSNormalization:
    case Op::kSoftmax:
      return d.value == n->output() ? std::optional(DimAt{n->input(0), d.axis}) : std::nullopt;
    case Op::kTranspose:
      return DimAt{n->input(0), PermOf(*n, rank)[static_cast<size_t>(d.axis)]};
    case Op::kReduceMean: {
      const auto axes = ConstInts(g, n->input(1));
      if (!axes || axes->size() != 1 || n->attrs.Int("keepdims", 1) != 1) return {};
      const int64_t reduced = (*axes)[0] < 0 ? (*axes)[0] + rank : (*axes)[0];
      return reduced != d.axis ? std::optional(DimAt{n->input(0), d.axis}) : std::nullopt;
    }
    default:
      break;
  }
  if (!IsElementwise(n->op)) return {};
  std::optional<DimAt> common;  // every operand that has the dim, unless it is the number 1
  for (ValueId v : n->inputs) {
    const SymShape* s = ShapeOf(g, v);
    if (!v.valid()) continue;
    if (s == nullptr) return {};
    const int64_t axis = d.axis - (rank - static_cast<int64_t>(s->size()));
    if (axis < 0 || IsNumber((*s)[static_cast<size_t>(axis)], 1)) continue;
    const DimAt origin = OriginOf(g, {v, axis}, depth - 1);
    if (common && !(*common == origin)) return {};
    common = origin;
  }
  return common;
}

DimAt OriginOf(const Graph& g, DimAt d, int depth) {
  for (; depth > 0; --depth) {
    const auto next = Before(g, d, depth);
    if (!next) return d;
    d = *next;
  }
  return d;
}

// The dim that v, an integer of one element, reads.
std::optional<DimAt> DimRead(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  for (int i = 0; n != nullptr && i < 4 && (IsReshapeLike(n->op) || n->op == Op::kCast); ++i) {
    v = n->input(0);
    n = g.Producer(v);
  }
  if (n == nullptr) return {};
  const Node* shape = n;
  int64_t index = 0;
  if (n->op == Op::kGather || n->op == Op::kSlice) {
    const auto at = ConstInts(g, n->input(1));
    shape = g.Producer(n->input(0));
    if (!at || at->size() != 1 || ConstInts(g, v)) return {};
    index = (*at)[0];
  }
  if (shape == nullptr || shape->op != Op::kShape) return {};
  const int64_t rank = RankOf(g, shape->input(0)), start = shape->attrs.Int("start", 0);
  if (rank < 0) return {};
  int64_t axis = index + (start < 0 ? start + rank : start);
  if (index < 0) axis = shape->attrs.Has("end") ? -1 : index + rank;
  if (axis < 0 || axis >= rank) return {};
  return DimAt{shape->input(0), axis};
}

}  // namespace

bool FoldCopiedDims(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const SymShape* in = ShapeOf(g, n.input(0));
  const Node* target = n.op == Op::kReshape ? g.Producer(n.input(1)) : nullptr;
  if (in == nullptr || target == nullptr || target->op != Op::kConcat || n.attrs.Int("allowzero", 0) != 0) return false;
  const std::vector<ValueId> pieces = target->inputs;
  std::vector<ValueId> changed = pieces;
  bool any = false;
  for (size_t i = 0; i < pieces.size() && i < in->size(); ++i) {
    const SymShape* s = ShapeOf(g, pieces[i]);
    if (s == nullptr || s->size() != 1 || !IsNumber((*s)[0], 1)) return false;
    if ((*in)[i].known()) continue;  // a name says as much
    const auto read = g.ConstantOf(pieces[i]) == nullptr ? DimRead(g, pieces[i]) : std::nullopt;
    if (!read || !(OriginOf(g, *read, kMaxDepth) == OriginOf(g, {n.input(0), static_cast<int64_t>(i)}, kMaxDepth)))
      continue;
    changed[i] = MakeInts(rw, {0});
    any = true;
  }
  if (!any) return false;
  const NodeId old = g.value(n.input(1)).producer;
  const ValueId shape = Make(rw, Op::kConcat, changed, {{"axis", int64_t{0}}}, TypeOf(g, n.input(1)));
  rw.SetInput(id, 1, shape);
  rw.EraseDead(old);
  return true;
}

}  // namespace octavo::passes::canonical
