// views: chains of Reshape, Squeeze, Unsqueeze, Flatten and Transpose.
// Before: Reshape(Reshape(x))            After: Reshape(x), or x
// Before: Transpose(Transpose(x))        After: Transpose(x), or x
// Before: k [b,h,s,d] -> Reshape [b*h,s,d] -> Transpose 0,2,1 -> Reshape [b,h,d,s]      (dynamo sdpa)
// After:  k -> Transpose 0,1,3,2, and with the head split in front: Reshape [0,0,h,d] -> Transpose 0,2,3,1
// Before: Transpose(Unsqueeze(x))        After: Unsqueeze(Transpose(x))                  (einsum of tf2onnx)
// Before: [b,s,64] -> Reshape [b,1,s,4,16] -> Transpose 0,3,1,2,4      After: [b,s,64] -> Reshape [b,s,4,16] -> Transpose 0,2,1,3 -> Reshape (dims of 1)
// The normal form around one Transpose: a Reshape that splits what the Transpose or a later Reshape parts (and merges
// what both leave together), the Transpose at its smallest rank, a Reshape that merges the rest.
// Refused: empty dims, targets with two dims that are neither numbers nor dims of the operand.
#include <algorithm>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/sink.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

// --- Reshape-like after reshape-like ----------------------------------------------------------------------------

Ints MergedAxes(const Ints& inner, const Ints& outer, Op op, int64_t outer_rank) {
  // Unsqueeze counts axes in its output: the outer ones stay, the inner ones take the places that are left.
  // Squeeze counts them in its input: the inner ones stay.
  const Ints& fixed = op == Op::kUnsqueeze ? outer : inner;
  const Ints& moving = op == Op::kUnsqueeze ? inner : outer;
  Ints free;
  for (int64_t i = 0; i < outer_rank; ++i) {
    if (!std::binary_search(fixed.begin(), fixed.end(), i)) free.push_back(i);
  }
  Ints axes = fixed;
  for (int64_t a : moving) axes.push_back(free[static_cast<size_t>(a)]);
  std::sort(axes.begin(), axes.end());
  return axes;
}

bool MergeReshapes(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Node* inner = g.Producer(n.input(0));
  if (inner == nullptr || !IsReshapeLike(inner->op)) return false;
  const ValueId x = inner->input(0);
  const SymShape* in = ShapeOf(g, x);
  const SymShape* out = ShapeOf(g, n.output());
  if (in == nullptr || out == nullptr) return false;
  const bool opposite =
      (n.op == Op::kSqueeze && inner->op == Op::kUnsqueeze) || (n.op == Op::kUnsqueeze && inner->op == Op::kSqueeze);
  // The same axes there and back, whatever the other dims are.
  const bool undone = opposite && AxesOf(g, n) && AxesOf(g, n) == AxesOf(g, *inner);
  if (undone || ProvablyEqual(*in, *out)) {
    ReplaceNode(rw, id, x);
    return true;
  }
  const Type type{DTypeOf(g, x), *out};
  if (n.op == inner->op && (n.op == Op::kUnsqueeze || n.op == Op::kSqueeze)) {
    const auto first = AxesOf(g, *inner), second = AxesOf(g, n);
    if (!first || !second) return false;
    const int64_t rank = static_cast<int64_t>(n.op == Op::kUnsqueeze ? out->size() : in->size());
    const ValueId axes = MakeInts(rw, MergedAxes(*first, *second, n.op, rank));
    ReplaceNode(rw, id, Make(rw, n.op, {x, axes}, {}, type));
    return true;
  }
  const ValueId merged = MakeReshape(rw, x, *out);
  if (!merged.valid()) return false;
  rw.graph().SetType(merged, type);
  ReplaceNode(rw, id, merged);
  return true;
}

// Axes as a constant without negative numbers, in order: then equal nodes are equal bit by bit.
bool NormalizeAxes(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kSqueeze && n.op != Op::kUnsqueeze) return false;
  const auto axes = AxesOf(g, n);
  if (!axes || !n.input(1).valid() || ConstInts(g, n.input(1)) == axes) return false;
  const NodeId old = g.value(n.input(1)).producer;
  rw.SetInput(id, 1, MakeInts(rw, *axes));
  rw.EraseDead(old);
  return true;
}

// --- Reshape, Transpose, Reshape ----------------------------------------------------------------------------------

// Dims of two shapes of one element sequence, cut where either cuts: `atoms` in order, and the atoms of each dim.
struct Refinement {
  SymShape atoms;
  std::vector<Ints> a, b;
};

// No dim may be the number 1. Empty where a quotient is not exact.
std::optional<Refinement> Refine(const SymShape& a, const SymShape& b) {
  Refinement r{{}, std::vector<Ints>(a.size()), std::vector<Ints>(b.size())};
  if (a.empty() || b.empty()) return {};
  size_t i = 0, j = 0;
  Dim left = a[0], right = b[0];
  while (true) {
    const int64_t atom = static_cast<int64_t>(r.atoms.size());
    r.a[i].push_back(atom);
    r.b[j].push_back(atom);
    const Dim more_right = ExactDiv(right, left), more_left = ExactDiv(left, right);
    bool next_i = true, next_j = true;
    if (ProvablyEqual(left, right)) {
      r.atoms.push_back(left);
    } else if (more_right.known()) {
      r.atoms.push_back(left);
      right = more_right;
      next_j = false;
    } else if (more_left.known()) {
      r.atoms.push_back(right);
      left = more_left;
      next_i = false;
    } else {
      return {};
    }
    if (next_i && ++i < a.size()) left = a[i];
    if (next_j && ++j < b.size()) right = b[j];
    if (i >= a.size() && j >= b.size()) return r;
    if (i >= a.size() || j >= b.size()) return {};
  }
}

bool HasZero(const SymShape& s) {
  return std::any_of(s.begin(), s.end(), [](const Dim& d) { return IsNumber(d, 0); });
}
int64_t CountOnes(const SymShape& s) {
  return std::count_if(s.begin(), s.end(), [](const Dim& d) { return IsNumber(d, 1); });
}

struct Chain {
  ValueId x;        // in front of the first Reshape
  SymShape middle;  // what the Transpose reads
  Ints perm;
  ValueId y;  // behind the last Reshape
  int reshapes = 0;
};

std::optional<Chain> ChainAround(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const SymShape* middle = ShapeOf(g, n.input(0));
  if (middle == nullptr) return {};
  Chain c{n.input(0), *middle, PermOf(n, static_cast<int64_t>(middle->size())), n.output(), 0};
  if (const Node* before = g.Producer(c.x); before != nullptr && IsReshapeLike(before->op)) {
    c.x = before->input(0);
    ++c.reshapes;
  }
  if (g.HasOneUse(c.y)) {
    const Node& after = g.node(g.value(c.y).uses.front().node);
    const SymShape* out = ShapeOf(g, after.output());
    // A Reshape that adds dims of 1 (Unsqueeze for repeated heads) is no part of the chain: in front of the Transpose
    // it would disfigure the head split. One that brings back those of x is (a batch of 1 that was merged with the heads).
    const SymShape* first = ShapeOf(g, c.x);
    const int64_t ones = std::max(CountOnes(*middle), first == nullptr ? 0 : CountOnes(*first));
    if (IsReshapeLike(after.op) && g.value(c.y).uses.front().slot == 0 && out != nullptr && CountOnes(*out) <= ones) {
      c.y = after.output();
      ++c.reshapes;
    }
  }
  if (c.reshapes == 0 || ShapeOf(g, c.x) == nullptr || ShapeOf(g, c.y) == nullptr) return {};
  return c;
}

struct NormalForm {
  SymShape split;  // shape after the first Reshape; equal to x's: none needed
  Ints perm;
  std::vector<bool> glued;  // by place in perm: in one dim of the result with the place before
};

std::optional<NormalForm> Normalize(const SymShape& x, const Chain& c, const SymShape& z) {
  if (HasZero(x) || HasZero(c.middle) || HasZero(z)) return {};
  const auto front = Refine(x, c.middle);
  if (!front) return {};
  SymShape moved;   // atoms in the order behind the Transpose
  Ints moved_from;  // and their place in front of it
  for (int64_t p : c.perm) {
    for (int64_t atom : front->b[static_cast<size_t>(p)]) {
      moved.push_back(front->atoms[static_cast<size_t>(atom)]);
      moved_from.push_back(atom);
    }
  }
  const auto back = Refine(moved, z);  // the last Reshape may split atoms further
  if (!back) return {};
  NormalForm f;
  std::vector<int64_t> first_piece(moved.size());  // where the pieces of an atom start in f.split
  std::vector<size_t> place(moved.size());         // of an atom, in `moved`
  for (size_t k = 0; k < moved_from.size(); ++k) place[static_cast<size_t>(moved_from[k])] = k;
  for (size_t atom = 0; atom < front->atoms.size(); ++atom) {
    first_piece[atom] = static_cast<int64_t>(f.split.size());
    for (int64_t piece : back->a[place[atom]]) f.split.push_back(back->atoms[static_cast<size_t>(piece)]);
  }
  for (size_t k = 0; k < moved_from.size(); ++k) {
    const int64_t start = first_piece[static_cast<size_t>(moved_from[k])];
    for (size_t i = 0; i < back->a[k].size(); ++i) f.perm.push_back(start + static_cast<int64_t>(i));
  }
  f.glued.resize(f.perm.size(), false);
  for (const Ints& group : back->b) {
    for (size_t i = 1; i < group.size(); ++i) {
      const size_t k = static_cast<size_t>(group[i]);
      f.glued[k] = f.perm[k] == f.perm[k - 1] + 1;
    }
  }
  return f;
}

// Pieces that follow each other on both sides and are one dim of the result are not cut (repeated heads: the merge of
// groups and repeats stays in front of K's Transpose).
void Coarsen(NormalForm& f) {
  std::vector<bool> glued(f.split.size(), false);
  for (size_t k = 0; k < f.perm.size(); ++k) glued[static_cast<size_t>(f.perm[k])] = f.glued[k];
  SymShape split;
  Ints index(f.split.size());
  for (size_t i = 0; i < f.split.size(); ++i) {
    if (glued[i]) {
      split.back() = split.back() * f.split[i];
    } else {
      split.push_back(f.split[i]);
    }
    index[i] = static_cast<int64_t>(split.size()) - 1;
  }
  Ints perm;
  for (int64_t p : f.perm) {
    if (!glued[static_cast<size_t>(p)]) perm.push_back(index[static_cast<size_t>(p)]);
  }
  f.split = std::move(split);
  f.perm = std::move(perm);
}

SymShape WithoutOnes(SymShape s) {
  std::erase_if(s, [](const Dim& d) { return IsNumber(d, 1); });
  return s;
}

// Dims of 1 that a Reshape has put between others move behind the Transpose; false: there are none. What stays has rank 4 at least, for the dim of 1
// in [b,s,1,64] are heads.
bool DropOnes(const SymShape& x, Chain& c, SymShape& z) {
  const SymShape middle = WithoutOnes(c.middle);
  if (middle.size() < 4 || middle.size() == c.middle.size() || CountOnes(x) > 0) return false;
  Ints place(c.middle.size());  // of each dim among those that stay
  for (size_t i = 1; i < place.size(); ++i) place[i] = place[i - 1] + (IsNumber(c.middle[i - 1], 1) ? 0 : 1);
  Ints perm;
  for (int64_t p : c.perm) {
    if (!IsNumber(c.middle[static_cast<size_t>(p)], 1)) perm.push_back(place[static_cast<size_t>(p)]);
  }
  c.middle = middle;
  c.perm = std::move(perm);
  z = WithoutOnes(z);
  return true;
}

bool NormalizeChain(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  auto chain = ChainAround(g, id);
  if (!chain) return false;
  const SymShape x = *ShapeOf(g, chain->x), z = *ShapeOf(g, chain->y);
  SymShape end = z;
  const bool fewer = DropOnes(x, *chain, end);
  auto form = Normalize(x, *chain, end);
  if (!form) return false;
  Coarsen(*form);
  if (!fewer && ProvablyEqual(form->split, chain->middle) && form->perm == chain->perm) return false;  // normal already
  const SymShape moved = Permuted(form->split, form->perm);
  const bool split = !ProvablyEqual(form->split, x), merge = !ProvablyEqual(moved, z);
  // Everything must be expressible before anything is made.
  if (split && !CanReshape(x, form->split)) return false;
  if (merge && !CanReshape(moved, z)) return false;
  const NodeId last = g.value(chain->y).producer;
  rw.At(last, last == id ? std::vector<NodeId>{id} : std::vector<NodeId>{id, last});
  ValueId v = split ? MakeReshape(rw, chain->x, form->split) : chain->x;
  if (!IsIdentityPerm(form->perm)) v = MakeTranspose(rw, v, form->perm);
  if (merge) v = MakeReshape(rw, v, z);
  ReplaceNode(rw, last, v);
  return true;
}

bool MergeTransposes(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const int64_t rank = RankOf(g, n.input(0));
  if (rank < 0) return false;
  const Ints outer = PermOf(n, rank);
  if (IsIdentityPerm(outer)) {
    ReplaceNode(rw, id, n.input(0));
    return true;
  }
  const Node* inner = g.Producer(n.input(0));
  if (inner == nullptr || inner->op != Op::kTranspose) return false;
  const Ints first = PermOf(*inner, rank);
  Ints perm;
  for (int64_t p : outer) perm.push_back(first[static_cast<size_t>(p)]);
  const ValueId x = inner->input(0);
  ReplaceNode(rw, id, IsIdentityPerm(perm) ? x : MakeTranspose(rw, x, perm));
  return true;
}

// The dims of 1 are added behind the Transpose, where a Reshape that follows takes them, too.
bool SinkUnsqueeze(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Node* inner = g.Producer(n.input(0));
  const SymShape *in = inner == nullptr ? nullptr : ShapeOf(g, inner->input(0)), *out = ShapeOf(g, n.output());
  if (in == nullptr || out == nullptr || inner->op != Op::kUnsqueeze) return false;
  const auto added = AxesOf(g, *inner);
  if (!added) return false;
  const Ints perm = PermOf(n, static_cast<int64_t>(out->size()));
  Ints axes, kept;
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto before = std::ranges::lower_bound(*added, perm[i]);
    if (before != added->end() && *before == perm[i]) {
      axes.push_back(static_cast<int64_t>(i));
    } else {
      kept.push_back(perm[i] - (before - added->begin()));
    }
  }
  const Type type{DTypeOf(g, n.output()), *out};
  const ValueId x = inner->input(0);
  const ValueId moved = IsIdentityPerm(kept) ? x : MakeTranspose(rw, x, kept);
  ReplaceNode(rw, id, Make(rw, Op::kUnsqueeze, {moved, MakeInts(rw, axes)}, {}, type));
  return true;
}

bool ViewsNode(Rewriter& rw, NodeId id) {
  const Node& n = rw.graph().node(id);
  rw.At(id, {id});
  if (n.op == Op::kTranspose) return MergeTransposes(rw, id) || SinkUnsqueeze(rw, id) || NormalizeChain(rw, id);
  if (IsReshapeLike(n.op)) return MergeReshapes(rw, id) || NormalizeAxes(rw, id);
  return SinkReshape(rw, id);
}

}  // namespace

Result<bool> Views(Graph& graph, PassRun&) {
  bool changed = false;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
    Rewriter rw(graph, "views");
    for (NodeId id : graph.NodesInOrder()) {
      if (graph.IsAlive(id)) ViewsNode(rw, id);
    }
    if (!rw.changed()) break;
    changed = true;
  }
  return changed;
}

}  // namespace octavo::passes::canonical
