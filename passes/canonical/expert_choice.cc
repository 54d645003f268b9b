#include "octavo/passes/canonical/expert_choice.h"

#include <algorithm>
#include <iterator>

namespace octavo::passes::canonical {

namespace {

ValueId WithoutCasts(const Graph& g, ValueId v) {
  while (g.IsFrom(v, Op::kCast)) v = g.Producer(v)->input(0);
  return v;
}

SymShape WithoutOnes(const SymShape& shape) {
  SymShape rest;
  std::ranges::copy_if(shape, std::back_inserter(rest), [](const Dim& d) { return !IsNumber(d, 1); });
  return rest;
}

// A view in which the dims that are not 1 stay in their order.
bool KeepsRows(const Graph& g, const Node* n) {
  if (n == nullptr || (!IsReshapeLike(n->op) && n->op != Op::kTranspose)) return false;
  const SymShape *in = ShapeOf(g, n->input(0)), *out = ShapeOf(g, n->output());
  if (in == nullptr || out == nullptr) return false;
  if (n->op == Op::kTranspose) {
    Ints stay = PermOf(*n, RankOf(g, n->input(0)));
    std::erase_if(stay, [&](int64_t axis) { return IsNumber((*in)[static_cast<size_t>(axis)], 1); });
    return std::ranges::is_sorted(stay);
  }
  const SymShape a = WithoutOnes(*in), b = WithoutOnes(*out);
  size_t differ = 0;  // one alone is the same, since the number of elements is
  for (size_t i = 0; a.size() == b.size() && i < a.size(); ++i) differ += ProvablyEqual(a[i], b[i]) ? 0 : 1;
  return a.size() == b.size() && differ <= 1;
}

bool IsLastAxis(const Graph& g, ValueId v, int64_t axis) { return axis == -1 || axis == RankOf(g, v) - 1; }

// v[.., i] or v[.., i:i+1] of input 0 along `axis`, as Slice or Gather say it.
std::optional<int64_t> PartAlong(const Graph& g, const Node& n, int64_t axis) {
  const int64_t rank = RankOf(g, n.input(0));
  if (rank < 0) return {};
  if (n.op == Op::kGather) {
    const auto at = ConstInts(g, n.input(1));
    const int64_t along = n.attrs.Int("axis", 0);
    return at && at->size() == 1 && (along + rank) % rank == axis ? std::optional(at->front()) : std::nullopt;
  }
  if (n.op != Op::kSlice) return {};
  const auto starts = ConstInts(g, n.input(1)), ends = ConstInts(g, n.input(2)), axes = ConstInts(g, n.input(3));
  if (!starts || !ends || !axes || axes->size() != 1 || (axes->front() + rank) % rank != axis) return {};
  const bool one = starts->front() >= 0 && ends->front() == starts->front() + 1;
  return one ? std::optional(starts->front()) : std::nullopt;
}

// index, where v [..,k,E] is 1 at the expert that it names and 0 elsewhere.
ValueId BehindOneHot(const Graph& g, ValueId v) {
  const Node* n = g.Producer(WithoutCasts(g, v));
  if (n == nullptr) return {};
  if (n->op == Op::kOneHot) {
    const auto values = ConstInts(g, n->input(2));
    const bool bits = values && *values == Ints{0, 1} && IsLastAxis(g, n->output(), n->attrs.Int("axis", -1));
    return bits ? n->input(0) : ValueId{};
  }
  if (n->op != Op::kEqual) return {};
  const auto numbers = ConstInts(g, n->input(1));
  for (size_t i = 0; numbers && i < numbers->size(); ++i) {
    if ((*numbers)[i] != static_cast<int64_t>(i)) return {};
  }
  const Node* last = g.Producer(n->input(0));
  if (!numbers || numbers->size() < 2 || last == nullptr || !IsReshapeLike(last->op)) return {};
  const SymShape *in = ShapeOf(g, last->input(0)), *out = ShapeOf(g, last->output());
  if (in == nullptr || out == nullptr || out->size() != in->size() + 1 || !IsNumber(out->back(), 1)) return {};
  return ProvablyEqual(*in, SymShape(out->begin(), out->end() - 1)) ? last->input(0) : ValueId{};
}

// Share of the expert whose number index is compared with: Where(index = e, shares, 0) or shares * (index = e).
std::optional<Choice> ComparedShare(const Graph& g, const Node& n) {
  const auto compared = [&](ValueId v, ValueId shares) -> std::optional<Choice> {
    const Node* equal = g.Producer(WithoutCasts(g, v));
    if (equal == nullptr || equal->op != Op::kEqual) return {};
    const auto expert = ConstInts(g, equal->input(1));
    if (!expert || expert->size() != 1) return {};
    return Choice{equal->input(0), shares, expert->front(), {}};
  };
  if (n.op == Op::kWhere && IsZeros(g, n.input(2))) return compared(n.input(0), n.input(1));
  if (n.op != Op::kMul) return {};
  if (const auto c = compared(n.input(1), n.input(0))) return c;
  return compared(n.input(0), n.input(1));
}

// What v is a view of, in the shape of index; else v.
ValueId LikeIndex(const Graph& g, ValueId v, ValueId index) {
  const ValueId wide = v;
  for (int views = 0; views < 3; ++views) {
    const SymShape *a = ShapeOf(g, v), *b = ShapeOf(g, index);
    if (a != nullptr && b != nullptr && ProvablyEqual(*a, *b)) return v;
    const Node* n = g.Producer(v);
    if (n == nullptr || n->op != Op::kUnsqueeze) break;
    v = n->input(0);
  }
  return wide;
}

// Shares [..,E] of all experts: the best scattered into zeros, or the sum over one-hot rows times shares.
std::optional<Choice> DenseShares(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr) return {};
  if (n->op == Op::kScatterElements) {
    const bool plain = n->attrs.Str("reduction", "none") == "none" && IsLastAxis(g, v, n->attrs.Int("axis", 0));
    if (plain && IsZeros(g, n->input(0))) return Choice{n->input(1), n->input(2), 0, {}};
    return {};
  }
  const int64_t rank = RankOf(g, n->input(0));
  if (n->op != Op::kReduceSum || n->attrs.Int("keepdims", 1) != 0 || !g.IsFrom(n->input(0), Op::kMul)) return {};
  if (const auto axes = ConstInts(g, n->input(1)); axes != Ints{-2} && axes != Ints{rank - 2}) return {};
  const Node& product = *g.Producer(n->input(0));
  for (size_t i = 0; i < 2; ++i) {
    const ValueId index = BehindOneHot(g, product.input(i));
    if (index.valid()) return Choice{index, LikeIndex(g, product.input(1 - i), index), 0, {}};
  }
  return {};
}

bool Fits(const Graph& g, const Choice& c) {
  const SymShape *index = ShapeOf(g, c.index), *shares = ShapeOf(g, c.shares);
  return index != nullptr && shares != nullptr && !index->empty() && index->back().is_number() &&
         ProvablyEqual(*index, *shares) && c.expert >= 0 && c.expert < ExpertsOf(g, c.index);
}

// Places where an expert was chosen: NonZero of its part of one-hot rows, turned to [E,T,k] or [E,k,T].
struct Places {
  ValueId index;
  int64_t expert = 0,
          token = 0;  // the row of the NonZero that has tokens; the other one has the place among their best
};
std::optional<Places> PlacesAt(const Graph& g, NodeId places) {
  const Node& n = g.node(places);
  if (n.op != Op::kNonZero || RankOf(g, n.input(0)) != 2) return {};
  const Node* part = g.Producer(BehindViews(g, WithoutCasts(g, n.input(0))));
  if (part == nullptr || part->op != Op::kGather || part->attrs.Int("axis", 0) != 0) return {};
  const Node* turned = g.Producer(part->input(0));
  if (turned == nullptr || turned->op != Op::kTranspose) return {};
  const Ints perm = PermOf(*turned, 3);
  const ValueId index = BehindOneHot(g, turned->input(0));
  if (!index.valid() || RankOf(g, index) != 2 || (perm != Ints{2, 1, 0} && perm != Ints{2, 0, 1})) return {};
  const auto expert = ExpertAt(g, part->input(1), ExpertsOf(g, index));
  return expert ? std::optional(Places{index, *expert, perm[1] == 0 ? 0 : 1}) : std::nullopt;
}

// v is that row of a NonZero.
bool IsRowOf(const Graph& g, ValueId v, NodeId places, int64_t row) {
  v = BehindViews(g, v);
  const Node* n = g.Producer(v);
  if (n == nullptr) return false;
  const Node* turned = g.Producer(n->input(0));
  if (turned == nullptr || turned->op != Op::kTranspose || g.value(turned->input(0)).producer != places) return false;
  if (n->op != Op::kSplit) return PartAlong(g, *n, 1) == row;
  return n->outputs.size() == 2 && (n->attrs.Int("axis", 0) == 1 || n->attrs.Int("axis", 0) == -1) &&
         n->output(static_cast<size_t>(row)) == v;
}

// The NonZero whose rows v is made of, by elementwise ops and a Concat; invalid: none.
NodeId PlacesBehind(const Graph& g, ValueId v) {
  constexpr int kMostNodes = 12;
  for (int i = 0; i < kMostNodes && v.valid(); ++i) {
    const Node* n = g.Producer(v);
    if (n == nullptr) return {};
    if (n->op == Op::kNonZero) return g.value(v).producer;
    v = n->input(0);
  }
  return {};
}

}  // namespace

int64_t ExpertsOf(const Graph& g, ValueId index) {
  const ValueId v = BehindViews(g, WithoutCasts(g, index));
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op != Op::kTopK || n->output(1) != v) return 0;
  const SymShape* all = ShapeOf(g, n->input(0));
  if (all == nullptr || !IsLastAxis(g, n->input(0), n->attrs.Int("axis", -1)) || !all->back().is_number()) return 0;
  return all->back().number();
}

bool IsZeros(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr) return false;
  if (n->op == Op::kExpand) return IsZeros(g, n->input(0));
  const Tensor value = n->op == Op::kConstantOfShape ? n->attrs.TensorOr("value", Tensor::F32({1}, {0.0f})) : Tensor();
  const Tensor* t = value.defined() ? &value : g.ConstantOf(v);
  constexpr int64_t kMost = 1 << 16;
  if (t == nullptr || !IsPlainFloat(t->dtype()) || t->size() == 0 || t->size() > kMost) return false;
  for (int64_t i = 0; i < t->size(); ++i) {
    if (t->GetDouble(i) != 0) return false;
  }
  return true;
}

ValueId BehindViews(const Graph& g, ValueId v) {
  constexpr int kMostViews = 8;
  for (int i = 0; i < kMostViews && KeepsRows(g, g.Producer(v)); ++i) v = g.Producer(v)->input(0);
  return v;
}

std::optional<int64_t> ExpertAt(const Graph& g, ValueId v, int64_t experts) {
  if (const auto number = ConstInts(g, v)) return number->size() == 1 ? std::optional(number->front()) : std::nullopt;
  v = BehindViews(g, v);
  const Node* split = g.Producer(v);
  if (split == nullptr || split->op != Op::kSplit || split->outputs.size() != static_cast<size_t>(experts)) return {};
  if (split->attrs.Int("axis", 0) != 0) return {};
  // Ascending numbers of those that were hit. As many as there are experts are all of them, and a run that hits fewer fails in the Split.
  const Node* hits = g.Producer(BehindViews(g, split->input(0)));
  const Node* hit = hits != nullptr && hits->op == Op::kNonZero ? g.Producer(hits->input(0)) : nullptr;
  if (hit == nullptr || hit->op != Op::kGreater || RankOf(g, hit->output()) != 1) return {};
  const Node* sum = g.Producer(hit->input(0));
  if (ConstInts(g, hit->input(1)) != Ints{0} || sum == nullptr || sum->op != Op::kReduceSum) return {};
  const auto axes = ConstInts(g, sum->input(1));
  if (axes != Ints{-1, -2} && axes != Ints{-2, -1} && axes != Ints{1, 2}) return {};
  const Node* turned = g.Producer(sum->input(0));
  if (turned == nullptr || turned->op != Op::kTranspose || PermOf(*turned, 3)[0] != 2) return {};
  if (ExpertsOf(g, BehindOneHot(g, turned->input(0))) != experts) return {};
  const auto found = std::ranges::find(split->outputs, v);
  return found == split->outputs.end() ? std::nullopt : std::optional<int64_t>(found - split->outputs.begin());
}

std::optional<Choice> SharesOfAll(const Graph& g, ValueId v) {
  const auto c = DenseShares(g, v);
  return c && Fits(g, *c) && IsNumber(ShapeOf(g, v)->back(), ExpertsOf(g, c->index)) ? c : std::nullopt;
}

std::optional<Choice> ShareOfTokens(const Graph& g, ValueId v) {
  const ValueId narrow = BehindViews(g, v);
  const Node* n = g.Producer(narrow);
  if (n == nullptr) return {};
  std::optional<Choice> c;
  const int64_t rank = RankOf(g, n->input(0));
  if (n->op == Op::kReduceSum) {
    const auto axes = ConstInts(g, n->input(1));
    const Node* summed = g.Producer(n->input(0));
    if (summed != nullptr && (axes == Ints{-1} || axes == Ints{rank - 1})) c = ComparedShare(g, *summed);
  } else if (const auto expert = PartAlong(g, *n, rank - 1)) {
    c = DenseShares(g, n->input(0));
    if (c) c->expert = *expert;
  }
  if (!c || !Fits(g, *c) || ShapeOf(g, v) == nullptr) return {};
  SymShape column = *ShapeOf(g, c->index);
  column.back() = Dim(1);
  return ProvablyEqual(*ShapeOf(g, v), column) ? c : std::nullopt;
}

std::optional<Choice> ShareOfPlaces(const Graph& g, ValueId v) {
  if (RankOf(g, v) != 2 || !IsNumber(ShapeOf(g, v)->back(), 1)) return {};
  const Node* n = g.Producer(BehindViews(g, v));
  if (n == nullptr || (n->op != Op::kGather && n->op != Op::kGatherND)) return {};
  const NodeId nonzero = PlacesBehind(g, n->input(1));
  const auto places = nonzero.valid() ? PlacesAt(g, nonzero) : std::nullopt;
  if (!places) return {};
  const auto row = [&](ValueId of, int64_t which) { return IsRowOf(g, of, nonzero, which); };
  Choice c{places->index, {}, places->expert, nonzero};
  const Node* at = g.Producer(n->input(1));
  if (n->op == Op::kGatherND) {  // shares [T,k] at tuples
    if (n->attrs.Int("batch_dims", 0) != 0 || at->op != Op::kConcat || at->inputs.size() != 2) return {};
    if (!row(at->input(0), places->token) || !row(at->input(1), 1 - places->token)) return {};
    c.shares = LikeIndex(g, n->input(0), places->index);
    return Fits(g, c) ? std::optional(c) : std::nullopt;
  }
  // Shares [T*k,1] at token * k + place
  const Node* flat = g.Producer(n->input(0));
  if (flat == nullptr || !IsReshapeLike(flat->op) || n->attrs.Int("axis", 0) != 0 || at->op != Op::kAdd) return {};
  c.shares = flat->input(0);
  const SymShape* wide = ShapeOf(g, n->input(0));
  if (!Fits(g, c) || wide == nullptr || wide->size() != 2 || !IsNumber(wide->back(), 1)) return {};
  for (size_t i = 0; i < 2; ++i) {
    const Node* first = g.Producer(at->input(i));
    const bool scaled = first != nullptr && first->op == Op::kMul && row(first->input(0), places->token) &&
                        ConstInts(g, first->input(1)) == Ints{ShapeOf(g, c.index)->back().number()};
    if (scaled && row(at->input(1 - i), 1 - places->token)) return c;
  }
  return {};
}

bool AreTokensOf(const Graph& g, ValueId v, NodeId places) {
  const auto found = PlacesAt(g, places);
  return found && IsRowOf(g, v, places, found->token);
}

}  // namespace octavo::passes::canonical
