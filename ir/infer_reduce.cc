// Rules of reductions.
#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

Status Reduce(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  const bool keep = c.node().attrs.Int("keepdims", 1) != 0;
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr) return {};
  const auto axes = c.Numbers(1);
  if (c.Has(1) && !axes) {  // which dims shrink is not known; a rank only where dims are kept
    if (keep) c.Set(0, c.DtypeOf(0), SymShape(from->size()));
    return {};
  }
  const bool none = !axes || axes->empty();
  if (none && c.node().attrs.Int("noop_with_empty_axes", 0) != 0) return SameAsFirst(c);
  std::vector<bool> reduced(from->size(), none);
  if (axes) {
    for (const int64_t a : *axes) {
      OCTAVO_TRY(const int64_t axis, c.Axis(a, static_cast<int64_t>(from->size())));
      reduced[static_cast<size_t>(axis)] = true;
    }
  }
  SymShape out;
  for (size_t i = 0; i < from->size(); ++i) {
    if (!reduced[i]) {
      out.push_back((*from)[i]);
    } else if (keep) {
      out.push_back(Dim(1));
    }
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status ArgReduce(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (out) {
    OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(out->size())));
    if (c.node().attrs.Int("keepdims", 1) != 0) {
      (*out)[static_cast<size_t>(axis)] = Dim(1);
    } else {
      out->erase(out->begin() + axis);
    }
  }
  c.Set(0, DType::kS64, std::move(out));
  return {};
}

}  // namespace

Rule ReduceRule(Op op) {
  switch (op) {
    case Op::kReduceL1:
    case Op::kReduceL2:
    case Op::kReduceLogSum:
    case Op::kReduceLogSumExp:
    case Op::kReduceMax:
    case Op::kReduceMean:
    case Op::kReduceMin:
    case Op::kReduceProd:
    case Op::kReduceSum:
    case Op::kReduceSumSquare:
      return Reduce;
    case Op::kArgMax:
    case Op::kArgMin:
      return ArgReduce;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
