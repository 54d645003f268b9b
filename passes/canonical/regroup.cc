#include "octavo/passes/canonical/regroup.h"

#include <algorithm>

namespace octavo::passes::canonical {

namespace {

// Where the products of leading dims agree: the ends of matching groups in both shapes. Nothing: they never end together.
std::optional<std::vector<std::pair<size_t, size_t>>> Cuts(const SymShape& a, const SymShape& b) {
  std::vector<std::pair<size_t, size_t>> cuts;
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
    if (!found) return {};
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

ValueId ExpandTo(Rewriter& rw, ValueId v, const SymShape& now, const SymShape& to) {
  std::vector<ValueId> parts;
  Ints numbers;
  bool constant = true;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool stays = ProvablyEqual(now[i], to[i]) && !to[i].is_number();  // 1 leaves a dim as it is
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
      const auto [input, axis] = *InputWith(rw.graph(), to[i]);
      parts.push_back(Make(rw, Op::kShape, {input}, Attrs{{"start", axis}, {"end", axis + 1}},
                           Type{DType::kS64, SymShape{Dim(1)}}));
    }
    shape = Make(rw, Op::kConcat, std::move(parts), Attrs{{"axis", int64_t{0}}}, target);
  }
  return Make(rw, Op::kExpand, {v, shape}, {}, Type{DTypeOf(rw.graph(), v), to});
}

// Leading ones change nothing in what broadcasts.
bool SameButForLeadingOnes(const SymShape& now, const SymShape& to) {
  if (now.size() > to.size()) return false;
  const auto lead = to.end() - static_cast<std::ptrdiff_t>(now.size());
  return std::all_of(to.begin(), lead, [](const Dim& d) { return IsNumber(d, 1); }) &&
         ProvablyEqual(now, SymShape(lead, to.end()));
}

}  // namespace

std::optional<Regrouping> RegroupingOf(const Graph& g, ValueId tensor, const SymShape& from, const SymShape& to) {
  const SymShape* shape = ShapeOf(g, tensor);
  if (shape == nullptr || shape->size() > from.size()) return {};
  Regrouping how;
  how.padded.assign(from.size() - shape->size(), Dim(1));
  how.padded.insert(how.padded.end(), shape->begin(), shape->end());
  for (size_t i = 0; i < from.size(); ++i) {
    if (!IsNumber(how.padded[i], 1) && !ProvablyEqual(how.padded[i], from[i])) return {};
  }
  if (ProvablyEqual(from, to)) {
    how.expanded = how.to = how.padded;
    return how;
  }
  const auto cuts = Cuts(from, to);
  if (!cuts) return {};
  size_t i = 0, j = 0;
  for (const auto& [end_i, end_j] : *cuts) {
    bool ones = true, full = true;
    for (size_t k = i; k < end_i; ++k) {
      ones = ones && IsNumber(how.padded[k], 1);
      full = full && ProvablyEqual(how.padded[k], from[k]);
    }
    const bool broadcast = ones && !full;
    for (size_t k = i; k < end_i; ++k) {
      how.expanded.push_back(broadcast ? Dim(1) : from[k]);
      const bool made = !broadcast && !ProvablyEqual(how.padded[k], from[k]);
      if (made && !from[k].is_number() && !InputWith(g, from[k])) return {};
    }
    for (size_t k = j; k < end_j; ++k) how.to.push_back(broadcast ? Dim(1) : to[k]);
    i = end_i, j = end_j;
  }
  const bool expands = !ProvablyEqual(how.padded, how.expanded);
  return CanReshape(expands ? how.expanded : *shape, how.to) ? std::optional(how) : std::nullopt;
}

ValueId Regroup(Rewriter& rw, ValueId tensor, const Regrouping& how) {
  ValueId v = tensor;
  if (!ProvablyEqual(how.padded, how.expanded)) v = ExpandTo(rw, v, how.padded, how.expanded);
  const SymShape* now = ShapeOf(rw.graph(), v);
  return SameButForLeadingOnes(*now, how.to) ? v : MakeReshape(rw, v, how.to);
}

}  // namespace octavo::passes::canonical
