// Rules of ops that give a tensor another shape: views, joins, splits, and shapes that are data.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

SymShape UnknownShape(int64_t rank) { return SymShape(static_cast<size_t>(rank)); }

// The shape that the elements of input `i` spell, as far as they are known; at least the rank, where possible.
MaybeShape ShapeFromContents(const Inferrer& c, size_t i) {
  if (const SymContents* contents = c.Contents(i)) return *contents;
  const SymShape* shape = c.ShapeOf(i);
  if (shape == nullptr || shape->size() != 1 || !(*shape)[0].is_number()) return std::nullopt;
  const int64_t rank = (*shape)[0].number();
  return rank >= 0 && rank <= 64 ? MaybeShape(UnknownShape(rank)) : std::nullopt;
}

Status Constant(Inferrer& c) {
  const Attr* attr = c.node().attrs.Find("value");
  const Tensor* tensor = attr == nullptr ? nullptr : std::get_if<Tensor>(attr);
  if (tensor == nullptr) return c.Refuse("a Constant needs a tensor attribute 'value'");
  c.Set(0, tensor->dtype(), SymShape(tensor->shape().begin(), tensor->shape().end()));
  return {};
}

// Fills the -1 (or the only unknown element) of a Reshape target so that the element counts agree. `copied` marks
// target dims that are the input's own: they cancel, even where they are unknown.
void FillReshape(Inferrer& c, const SymShape& from, const std::vector<bool>& copied, size_t open, SymShape& to) {
  Dim have(1);
  Dim taken(1);
  for (size_t i = 0; i < from.size(); ++i) {
    if (i >= copied.size() || !copied[i]) have = have * from[i];
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (i == open || copied[i]) continue;
    const Dim rest = ExactDiv(have, to[i]);
    (rest.known() ? have : taken) = rest.known() ? rest : taken * to[i];
  }
  to[open] = Quotient(have, taken);
  if (to[open].known() && !have.is_number()) c.ComesOutEven(to[open] * taken, have);
}

Status Reshape(Inferrer& c) {
  MaybeShape target = ShapeFromContents(c, 1);
  if (!target) {
    c.Set(0, c.DtypeOf(0), std::nullopt);
    return {};
  }
  const SymShape* from = c.ShapeOf(0);
  const bool zero_copies = c.node().attrs.Int("allowzero", 0) == 0;
  std::vector<bool> copied(target->size(), false);
  size_t open = target->size();
  size_t unknowns = 0;
  bool inferred = false;
  for (size_t i = 0; i < target->size(); ++i) {
    Dim& d = (*target)[i];
    if (d.is_number() && d.number() == 0 && zero_copies) {
      if (from != nullptr && i >= from->size()) {
        return c.Refuse("target {} copies dim {} of an input of rank {}", ToString(*target), i, from->size());
      }
      copied[i] = from != nullptr;
      d = from != nullptr ? (*from)[i] : Dim();
    } else if (d.is_number() && d.number() == -1) {
      if (inferred) return c.Refuse("its target has more than one -1");
      inferred = true;
      d = Dim();
      open = i;
      ++unknowns;
    } else if (d.is_number() && d.number() < 0) {
      return c.Refuse("its target {} has a negative size", ToString(*target));
    } else if (!d.known()) {
      open = i;
      ++unknowns;
    }
  }
  if (from != nullptr && unknowns == 1) FillReshape(c, *from, copied, open, *target);
  if (from != nullptr) {
    const Dim have = ProductOf(*from);
    const Dim want = ProductOf(*target);
    if (have.is_number() && want.is_number() && have.number() != want.number()) {
      return c.Refuse("{} has {} elements, but the target {} has {}", ToString(*from), have.number(), ToString(*target),
                      want.number());
    }
  }
  c.Set(0, c.DtypeOf(0), std::move(target));
  return {};
}

Status Flatten(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  SymShape out = UnknownShape(2);
  if (from != nullptr) {
    const auto rank = static_cast<int64_t>(from->size());
    int64_t axis = c.node().attrs.Int("axis", 1);
    if (axis < -rank || axis > rank) return c.Refuse("axis {} does not exist in a tensor of rank {}", axis, rank);
    if (axis < 0) axis += rank;
    const std::span<const Dim> dims(*from);
    out = {ProductOf(dims.first(static_cast<size_t>(axis))), ProductOf(dims.subspan(static_cast<size_t>(axis)))};
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Transpose(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  std::vector<int64_t> perm = c.node().attrs.Ints("perm");
  if (from == nullptr) {
    c.Set(0, c.DtypeOf(0), perm.empty() ? MaybeShape() : MaybeShape(UnknownShape(static_cast<int64_t>(perm.size()))));
    return {};
  }
  if (perm.empty()) {
    perm.resize(from->size());
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  std::vector<int64_t> sorted = perm, all(from->size());
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) return c.Refuse("perm {} is no permutation of a tensor of rank {}", ToString(perm), from->size());
  SymShape out;
  for (const int64_t p : perm) out.push_back((*from)[static_cast<size_t>(p)]);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Squeeze(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  const auto axes = c.Numbers(1);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr || (c.Has(1) && !axes)) return {};
  std::vector<bool> drop(from->size(), false);
  if (axes) {
    for (const int64_t a : *axes) {
      OCTAVO_TRY(const int64_t axis, c.Axis(a, static_cast<int64_t>(from->size())));
      const Dim& d = (*from)[static_cast<size_t>(axis)];
      if (d.is_number() && d.number() != 1) {
        return c.Refuse("dim {} of {} is not 1 and cannot be squeezed", axis, ToString(*from));
      }
      drop[static_cast<size_t>(axis)] = true;
    }
  } else {
    for (size_t i = 0; i < from->size(); ++i) {
      // Without axes the rank depends on the sizes: all must be numbers.
      if (!(*from)[i].is_number()) return {};
      drop[i] = (*from)[i].number() == 1;
    }
  }
  SymShape out;
  for (size_t i = 0; i < from->size(); ++i) {
    if (!drop[i]) out.push_back((*from)[i]);
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Unsqueeze(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  const auto axes = c.Numbers(1);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr || !axes) return {};
  const auto rank = static_cast<int64_t>(from->size() + axes->size());
  std::vector<bool> fresh(static_cast<size_t>(rank), false);
  for (const int64_t a : *axes) {
    OCTAVO_TRY(const int64_t axis, c.Axis(a, rank));
    if (fresh[static_cast<size_t>(axis)]) return c.Refuse("axis {} is named twice", a);
    fresh[static_cast<size_t>(axis)] = true;
  }
  SymShape out;
  size_t next = 0;
  for (const bool one : fresh) out.push_back(one ? Dim(1) : (*from)[next++]);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Concat(Inferrer& c) {
  MaybeShape out;
  const size_t count = c.node().inputs.size();
  size_t known = 0;
  for (size_t i = 0; i < count; ++i) {
    const SymShape* shape = c.ShapeOf(i);
    if (shape == nullptr) continue;
    ++known;
    OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(shape->size())));
    if (!out) {
      out = *shape;
      continue;
    }
    if (out->size() != shape->size()) return c.Refuse("input {} has another rank than the first", i);
    for (size_t d = 0; d < out->size(); ++d) {
      if (static_cast<int64_t>(d) == axis) {
        (*out)[d] = (*out)[d] + (*shape)[d];
      } else if (!Meet((*out)[d], (*shape)[d])) {
        return c.Refuse("input {} has the shape {}, which does not fit {}", i, ToString(*shape), ToString(*out));
      }
    }
  }
  if (out && known < count) {
    OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(out->size())));
    (*out)[static_cast<size_t>(axis)] = Dim();
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Split(Inferrer& c) {
  const size_t count = c.node().outputs.size();
  const SymShape* from = c.ShapeOf(0);
  for (size_t i = 0; i < count; ++i) c.Set(i, c.DtypeOf(0), std::nullopt);
  if (from == nullptr) return {};
  OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(from->size())));
  const Dim& whole = (*from)[static_cast<size_t>(axis)];
  const SymContents* sizes = c.Contents(1);
  if (sizes != nullptr && sizes->size() != count) {
    return c.Refuse("it names {} sizes for {} outputs", sizes->size(), count);
  }
  Dim used(0);
  for (size_t i = 0; i < count; ++i) {
    Dim part;
    if (sizes != nullptr) {
      part = (*sizes)[i];
    } else if (!c.Has(1) && whole.is_number()) {
      const int64_t chunk = CeilDiv(whole.number(), static_cast<int64_t>(count));
      part = Dim(std::clamp<int64_t>(whole.number() - used.number(), 0, chunk));
    } else if (!c.Has(1)) {
      part = ExactDiv(whole, Dim(static_cast<int64_t>(count)));
    }
    used = used + part;
    SymShape out = *from;
    out[static_cast<size_t>(axis)] = part;
    c.Set(i, c.DtypeOf(0), std::move(out));
  }
  if (ProvablyDifferent(used, whole) && used.is_number() && whole.is_number()) {
    return c.Refuse("its sizes sum to {}, but dim {} is {}", used.number(), axis, whole.number());
  }
  return {};
}

Status Expand(Inferrer& c) {
  MaybeShape target = ShapeFromContents(c, 1);
  ForgetNegative(target);
  OCTAVO_TRY(MaybeShape out, BroadcastShapes(c, c.ShapeOf(0), target ? &*target : nullptr));
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Tile(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  const SymContents* repeats = c.Contents(1);
  MaybeShape out;
  if (from != nullptr) {
    out = UnknownShape(static_cast<int64_t>(from->size()));
    if (repeats != nullptr && repeats->size() != from->size()) {
      return c.Refuse("it names {} repeats for a tensor of rank {}", repeats->size(), from->size());
    }
    for (size_t i = 0; i < from->size() && repeats != nullptr; ++i) (*out)[i] = (*from)[i] * (*repeats)[i];
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status ConstantOfShape(Inferrer& c) {
  const Tensor value = c.node().attrs.TensorOr("value");
  MaybeShape target = ShapeFromContents(c, 0);
  c.Set(0, value.defined() ? value.dtype() : DType::kF32, std::move(target));
  return {};
}

// As the interpreter counts them.
Dim LengthOfFloats(Inferrer& c) {
  double of[3];
  for (size_t i = 0; i < 3; ++i) {
    const Tensor* t = c.Constant(i);
    if (t == nullptr || t->size() != 1) return {};
    of[i] = t->GetDouble(0);
  }
  const double length = std::ceil((of[1] - of[0]) / of[2]);
  return of[2] != 0 && length < 0x1p40 ? Dim(static_cast<int64_t>(std::max(length, 0.0))) : Dim();
}

Status Range(Inferrer& c) {
  const auto scalar = [&c](size_t i) {
    const SymContents* contents = c.Contents(i);
    return contents != nullptr && contents->size() == 1 ? (*contents)[0] : Dim();
  };
  const Dim start = scalar(0);
  const Dim limit = scalar(1);
  const Dim step = scalar(2);
  Dim length;
  if (step.is_number() && step.number() != 0 && step.number() != INT64_MIN) {
    const Dim span = step.number() > 0 ? limit - start : start - limit;
    const int64_t stride = step.number() > 0 ? step.number() : -step.number();
    if (span.is_number()) {
      length = Dim(CeilDiv(span.number(), stride));
    } else {
      // A symbolic span is taken for a size: seq, or past + seq - past; its quotient must be exact.
      length = ExactDiv(span, Dim(stride));
    }
  }
  if (quant::IsFloat(c.DtypeOf(0))) length = LengthOfFloats(c);
  c.Set(0, c.DtypeOf(0), SymShape{length});
  return {};
}

Status ShapeOfTensor(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  Dim count;
  if (from != nullptr) {
    const auto rank = static_cast<int64_t>(from->size());
    const auto bound = [rank](int64_t v) { return std::clamp(v < 0 ? v + rank : v, int64_t{0}, rank); };
    const int64_t start = bound(c.node().attrs.Int("start", 0));
    const int64_t end = bound(c.node().attrs.Int("end", std::numeric_limits<int64_t>::max()));
    count = Dim(std::max<int64_t>(end - start, 0));
  }
  c.Set(0, DType::kS64, SymShape{count});
  return {};
}

Status Size(Inferrer& c) {
  c.Set(0, DType::kS64, SymShape{});
  return {};
}

Status EyeLike(Inferrer& c) {
  c.Set(0, c.node().attrs.Has("dtype") ? DTypeOfAttr(c, "dtype") : c.DtypeOf(0), c.CopyOf(0));
  return {};
}

}  // namespace

Rule MovementRule(Op op) {
  switch (op) {
    case Op::kConcat:
      return Concat;
    case Op::kConstant:
      return Constant;
    case Op::kConstantOfShape:
      return ConstantOfShape;
    case Op::kExpand:
      return Expand;
    case Op::kEyeLike:
      return EyeLike;
    case Op::kFlatten:
      return Flatten;
    case Op::kRange:
      return Range;
    case Op::kReshape:
      return Reshape;
    case Op::kShape:
      return ShapeOfTensor;
    case Op::kSize:
      return Size;
    case Op::kSplit:
      return Split;
    case Op::kSqueeze:
      return Squeeze;
    case Op::kTile:
      return Tile;
    case Op::kTranspose:
      return Transpose;
    case Op::kUnsqueeze:
      return Unsqueeze;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
