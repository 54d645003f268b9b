#include "octavo/passes/canonical/regroup.h"

#include <algorithm>

namespace octavo::passes::canonical {

namespace {

using Ends = std::vector<std::pair<size_t, size_t>>;

// From dims (i, j) on, of which no products are known to agree: as long as the last dims are the same, what stands before them is one group, since
// both shapes have as many elements.
std::optional<Ends> CutsFromBehind(const SymShape& a, const SymShape& b, size_t i, size_t j) {
  size_t same = 0;
  while (i + same < a.size() && j + same < b.size() &&
         ProvablyEqual(a.end()[-1 - static_cast<int>(same)], b.end()[-1 - static_cast<int>(same)]))
    ++same;
  if (same < 1 || i + same == a.size() || j + same == b.size()) return {};
  Ends cuts;
  for (size_t k = same + 1; k-- > 0;) cuts.emplace_back(a.size() - k, b.size() - k);
  return cuts;
}

// Where the products of leading dims agree: the ends of matching groups in both shapes. Nothing: they never end together.
std::optional<Ends> Cuts(const SymShape& a, const SymShape& b) {
  Ends cuts;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const size_t first_i = i, first_j = j;
    bool found = false;
    Dim left(1);
    // The shortest group of a that is some group of b.
    for (size_t end_i = first_i; end_i <= a.size() && !found; ++end_i) {
      if (end_i > first_i) left = left * a[end_i - 1];
      Dim right(1);
      for (size_t end_j = first_j; end_j <= b.size() && !found; ++end_j) {
        if (end_j > first_j) right = right * b[end_j - 1];
        if (end_i + end_j == first_i + first_j || !ProvablyEqual(left, right)) continue;
        i = end_i, j = end_j;
        found = true;
      }
    }
    if (!found) {
      const auto rest = CutsFromBehind(a, b, first_i, first_j);
      if (!rest) return {};
      cuts.insert(cuts.end(), rest->begin(), rest->end());
      return cuts;
    }
    cuts.emplace_back(i, j);
  }
  return cuts;
}

// The graph input and axis whose size is this dim.
std::optional<std::pair<ValueId, int64_t>> InputWith(const Graph& g, const Dim& d) {
  for (const ValueId v : g.inputs()) {
    const SymShape* s = ShapeOf(g, v);
    for (size_t i = 0; s != nullptr && i < s->size(); ++i) {
      if (ProvablyEqual((*s)[i], d)) return std::pair(v, static_cast<int64_t>(i));
    }
  }
  return {};
}

ValueId ReadDim(Rewriter& rw, ValueId v, size_t axis) {
  const auto at = static_cast<int64_t>(axis);
  return Make(rw, Op::kShape, {v}, Attrs{{"start", at}, {"end", at + 1}}, Type{DType::kS64, SymShape{Dim(1)}});
}

// Rows 0, 1, ... n-1, 0, 1, ... along the axis, as many as `like` has.
ValueId Repeated(Rewriter& rw, ValueId v, size_t axis, ValueId like) {
  const Graph& g = rw.graph();
  const Dim count = (*ShapeOf(g, like))[axis];
  const Type scalar{DType::kS64, SymShape{}}, list{DType::kS64, SymShape{count}};
  const ValueId zero = rw.Constant(Tensor::ScalarS64(0)), one = rw.Constant(Tensor::ScalarS64(1));
  const ValueId all = Make(rw, Op::kSqueeze, {ReadDim(rw, like, axis)}, {}, scalar);
  const ValueId places = Make(rw, Op::kRange, {zero, all, one}, {}, list);
  const ValueId rows = Make(rw, Op::kMod, {places, ReadDim(rw, v, axis)}, {}, list);
  SymShape shape = *ShapeOf(g, v);
  shape[axis] = count;
  return Make(rw, Op::kGather, {v, rows}, Attrs{{"axis", static_cast<int64_t>(axis)}}, Type{DTypeOf(g, v), shape});
}

// Which of `like` has to[axis] at the same axis; invalid: none.
ValueId LikeWith(const Graph& g, std::span<const ValueId> like, const SymShape& to, size_t axis) {
  for (const ValueId v : like) {
    const SymShape& s = *ShapeOf(g, v);
    if (s.size() == to.size() && ProvablyEqual(s[axis], to[axis])) return v;
  }
  return {};
}

ValueId ReadSize(Rewriter& rw, std::span<const ValueId> like, const SymShape& to, size_t axis) {
  if (const auto input = InputWith(rw.graph(), to[axis]))
    return ReadDim(rw, input->first, static_cast<size_t>(input->second));
  return ReadDim(rw, LikeWith(rw.graph(), like, to, axis), axis);
}

// 1 in the target of an Expand leaves a dim as it is. A size that nobody knows is the tensor's own: it cannot have been asked for.
bool Stays(const Dim& now, const Dim& to) { return !to.is_number() && (!to.known() || ProvablyEqual(now, to)); }

// Leading ones change nothing in what broadcasts.
bool SameButForLeadingOnes(const SymShape& now, const SymShape& to) {
  if (now.size() > to.size()) return false;
  const auto lead = to.end() - static_cast<std::ptrdiff_t>(now.size());
  return std::all_of(to.begin(), lead, [](const Dim& d) { return IsNumber(d, 1); }) &&
         ProvablyEqual(now, SymShape(lead, to.end()));
}

using Span = std::pair<size_t, size_t>;  // first and behind the last

// Dims of `from` that are dims of `to` together.
bool AddGroup(const Graph& g, const SymShape& from, const SymShape& to, Span of_from, Span of_to, Regrouping& how) {
  const auto [i, end_i] = of_from;
  const auto [j, end_j] = of_to;
  bool ones = true, full = true, rest_full = true;
  for (size_t k = i; k < end_i; ++k) {
    const bool one = IsNumber(how.padded[k], 1), is_full = ProvablyEqual(how.padded[k], from[k]);
    if (end_i == i + 1 && end_j == j + 1) {  // broadcast as it was, whatever it is
      how.expanded.push_back(how.padded[k]);
      how.to.push_back(how.padded[k]);
      return true;
    }
    if (!one && !is_full) return false;
    ones = ones && one;
    full = full && is_full;
    rest_full = rest_full && (k == i || is_full);
  }
  if (ones && !full) {
    how.expanded.insert(how.expanded.end(), end_i - i, Dim(1));
    how.to.insert(how.to.end(), end_j - j, Dim(1));
    return true;
  }
  const bool repeats = rest_full && !full && !from[i].is_number() && !InputWith(g, from[i]) && end_j == j + 1;
  Dim rows(1);
  for (size_t k = i; k < end_i; ++k) {
    const bool stays = ProvablyEqual(how.padded[k], from[k]) || (repeats && k == i);
    if (!stays && !from[k].is_number() && !InputWith(g, from[k])) return false;
    how.expanded.push_back(repeats ? how.padded[k] : from[k]);
    rows = rows * how.padded[k];
  }
  if (repeats) {
    how.repeated.push_back(j);
    how.to.push_back(rows);
  } else {
    for (size_t k = j; k < end_j; ++k) how.to.push_back(to[k]);
  }
  return true;
}

}  // namespace

std::optional<Regrouping> RegroupingOf(const Graph& g, ValueId tensor, const SymShape& from, const SymShape& to) {
  const SymShape* shape = ShapeOf(g, tensor);
  if (shape == nullptr || shape->size() > from.size()) return {};
  Regrouping how;
  how.padded.assign(from.size() - shape->size(), Dim(1));
  how.padded.insert(how.padded.end(), shape->begin(), shape->end());
  if (ProvablyEqual(from, to)) {
    how.expanded = how.to = how.padded;
    return how;
  }
  const auto cuts = Cuts(from, to);
  if (!cuts) return {};
  size_t i = 0, j = 0;
  for (const auto& [end_i, end_j] : *cuts) {
    if (!AddGroup(g, from, to, {i, end_i}, {j, end_j}, how)) return {};
    i = end_i, j = end_j;
  }
  const bool expands = !ProvablyEqual(how.padded, how.expanded);
  return CanReshape(expands ? how.expanded : *shape, how.to) ? std::optional(how) : std::nullopt;
}

bool CanRead(const Graph& g, const SymShape& to, size_t axis, std::span<const ValueId> like) {
  return to[axis].is_number() || (to[axis].known() && (InputWith(g, to[axis]) || LikeWith(g, like, to, axis).valid()));
}

ValueId ExpandTo(Rewriter& rw, ValueId v, const SymShape& now, const SymShape& to, std::span<const ValueId> like) {
  std::vector<ValueId> parts;
  Ints numbers;
  bool constant = true;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool stays = Stays(now[i], to[i]);
    numbers.push_back(stays ? 1 : to[i].is_number() ? to[i].number() : 0);
    constant = constant && (stays || to[i].is_number());
  }
  const Type target{DType::kS64, SymShape{Dim(static_cast<int64_t>(to.size()))}};
  ValueId shape = constant ? MakeInts(rw, numbers) : ValueId{};
  if (!constant) {
    for (size_t i = 0; i < to.size(); ++i) {
      if (numbers[i] != 0) {
        parts.push_back(MakeInts(rw, {numbers[i]}));
        continue;
      }
      parts.push_back(ReadSize(rw, like, to, i));
    }
    shape = Make(rw, Op::kConcat, std::move(parts), Attrs{{"axis", int64_t{0}}}, target);
  }
  return Make(rw, Op::kExpand, {v, shape}, {}, Type{DTypeOf(rw.graph(), v), to});
}

ValueId Regroup(Rewriter& rw, ValueId tensor, const Regrouping& how, ValueId like) {
  ValueId v = tensor;
  if (!ProvablyEqual(how.padded, how.expanded)) v = ExpandTo(rw, v, how.padded, how.expanded);
  if (!SameButForLeadingOnes(*ShapeOf(rw.graph(), v), how.to)) v = MakeReshape(rw, v, how.to);
  for (const size_t axis : how.repeated) v = Repeated(rw, v, axis, like);
  return v;
}

}  // namespace octavo::passes::canonical
