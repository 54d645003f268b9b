#include "octavo/ir/infer_arithmetic.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

namespace octavo::ir {

namespace {

// Symbols are sizes, hence at least 0; all bounds below stand on that.
std::optional<bool> IsLess(const Dim& a, const Dim& b) {
  if (const auto gap = (b - a).LowerBound(); gap && *gap > 0) return true;
  if (const auto gap = (a - b).LowerBound(); gap && *gap >= 0) return false;
  return std::nullopt;
}
std::optional<bool> IsEqual(const Dim& a, const Dim& b) {
  if (ProvablyEqual(a, b)) return true;
  if (ProvablyDifferent(a, b) || IsLess(a, b).value_or(false) || IsLess(b, a).value_or(false)) return false;
  return std::nullopt;
}
Dim Truth(std::optional<bool> b) { return b ? Dim(*b ? 1 : 0) : Dim(); }
Dim Negated(std::optional<bool> b) { return b ? Dim(*b ? 0 : 1) : Dim(); }

Dim Smaller(const Dim& a, const Dim& b) {
  if (ProvablyEqual(a, b)) return a;
  if (const auto less = IsLess(a, b)) return *less ? a : b;
  if (const auto less = IsLess(b, a)) return *less ? b : a;
  return {};
}
Dim Larger(const Dim& a, const Dim& b) {
  if (ProvablyEqual(a, b)) return a;
  if (const auto less = IsLess(a, b)) return *less ? b : a;
  if (const auto less = IsLess(b, a)) return *less ? a : b;
  return {};
}

// ONNX Div on integers truncates (as C does); on floats the quotient is whole only where it is exact.
Dim Divided(const Dim& a, const Dim& b, bool whole) {
  return whole && (a.is_number() || a.LowerBound().value_or(-1) >= 0) ? Quotient(a, b) : ExactDiv(a, b);
}

// What is congruent to a modulo b > 0 without the multiples of b, as far as a is a sum of symbols.
Dim Residue(const Dim& a, int64_t b) {
  std::set<std::string> names;
  a.Evaluate([&](std::string_view name) {
    names.emplace(name);
    return std::optional<int64_t>(1);
  });
  const auto constant = a.Evaluate([](std::string_view) { return std::optional<int64_t>(0); });
  if (!constant) return a;
  Dim sum(*constant), rest(*constant % b);
  for (const std::string& name : names) {
    const auto at_one = a.Evaluate([&](std::string_view other) { return std::optional<int64_t>(other == name); });
    const Dim factor = at_one ? Dim(*at_one) - *constant : Dim();
    if (!factor.known()) return a;
    sum = sum + factor * Dim::Symbol(name);
    rest = rest + Dim(factor.number() % b) * Dim::Symbol(name);
  }
  return ProvablyEqual(sum, a) ? rest : a;
}

// fmod = 0: the sign of the divisor (Python); fmod = 1: that of the dividend (C). Lengths are padded to a multiple of b by -n % b or (b - n % b) % b.
Dim Remainder(const Dim& a, const Dim& b, bool c_sign) {
  if (a.is_number() && b.is_number() && b.number() != 0 && a.number() != INT64_MIN) {
    const int64_t r = a.number() % b.number();
    return Dim(!c_sign && r != 0 && (r < 0) != (b.number() < 0) ? r + b.number() : r);
  }
  if (ExactDiv(a, b).known()) return Dim(0);
  if (!b.is_number() || b.number() < 1 || (c_sign && a.LowerBound().value_or(-1) < 0)) return {};
  const Dim rest = Residue(a, b.number()), below = Dim(0) - rest;
  if (rest.LowerBound().value_or(-1) >= 0) return rest - b * Quotient(rest, b);
  return below.LowerBound().value_or(-1) >= 0 ? b * Quotient(below + b - 1, b) + rest : Dim();
}

Dim Power(const Dim& base, const Dim& exponent) {
  if (!exponent.is_number() || exponent.number() < 0 || exponent.number() > 8) return {};
  Dim out(1);
  for (int64_t i = 0; i < exponent.number(); ++i) out = out * base;
  return out;
}

Dim Apply(const Inferrer& c, const Dim& a, const Dim& b) {
  switch (c.node().op) {
    case Op::kAdd:
    case Op::kSum:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return Divided(a, b, !quant::IsFloat(c.DtypeOf(0)));
    case Op::kMod:
      return Remainder(a, b, c.node().attrs.Int("fmod", 0) != 0);
    case Op::kPow:
      return Power(a, b);
    case Op::kMin:
      return Smaller(a, b);
    case Op::kMax:
      return Larger(a, b);
    case Op::kEqual:
      return Truth(IsEqual(a, b));
    case Op::kLess:
      return Truth(IsLess(a, b));
    case Op::kGreater:
      return Truth(IsLess(b, a));
    case Op::kLessOrEqual:
      return Negated(IsLess(b, a));
    case Op::kGreaterOrEqual:
      return Negated(IsLess(a, b));
    case Op::kAnd:
      if ((a.is_number() && a.number() == 0) || (b.is_number() && b.number() == 0)) return Dim(0);
      return a.is_number() && b.is_number() ? Dim(1) : Dim();
    case Op::kOr:
      if ((a.is_number() && a.number() != 0) || (b.is_number() && b.number() != 0)) return Dim(1);
      return a.is_number() && b.is_number() ? Dim(0) : Dim();
    case Op::kXor:
      return a.is_number() && b.is_number() ? Dim((a.number() != 0) != (b.number() != 0) ? 1 : 0) : Dim();
    default:
      return {};
  }
}

// Element i of a list that is broadcast if it has one element.
const Dim& At(const SymContents& list, size_t i) { return list[list.size() == 1 ? 0 : i]; }

// The common length under broadcasting; nullopt where the lists do not fit.
std::optional<size_t> CommonLength(size_t a, size_t b) {
  if (a == b || b == 1) return a;
  return a == 1 ? std::optional<size_t>(b) : std::nullopt;
}

void Fold(Inferrer& c) {
  const SymContents* first = c.Contents(0);
  if (first == nullptr) return;
  SymContents out = *first;
  for (size_t i = 1; i < c.node().inputs.size(); ++i) {
    const SymContents* next = c.Contents(i);
    if (next == nullptr) return;
    const auto count = CommonLength(out.size(), next->size());
    if (!count) return;
    SymContents joined;
    joined.reserve(*count);
    for (size_t k = 0; k < *count; ++k) joined.push_back(Apply(c, At(out, k), At(*next, k)));
    out = std::move(joined);
  }
  c.SetContents(0, std::move(out));
}

template <typename Function>
void Map(Inferrer& c, Function&& f) {
  const SymContents* from = c.Contents(0);
  if (from == nullptr) return;
  SymContents out;
  out.reserve(from->size());
  for (const Dim& d : *from) out.push_back(f(d));
  c.SetContents(0, std::move(out));
}

// A cast keeps what fits the new type; sizes given by symbols are taken to fit 32 bits.
void Cast(Inferrer& c) {
  const DType to = c.node().op == Op::kCast ? DTypeOfAttr(c, "to") : c.DtypeOf(1);
  if (to == DType::kBool) {
    return Map(c, [](const Dim& d) { return Negated(IsEqual(d, Dim(0))); });
  }
  int64_t low = INT64_MIN;
  int64_t high = INT64_MAX;
  if (to == DType::kF32) {
    high = static_cast<int64_t>(kWholeFloats);
    low = -high;
  } else if (quant::IsFloat(to) && to != DType::kF64) {
    high = 256;  // exact in bfloat16, the coarsest
    low = -high;
  } else if (quant::BitsOf(to) > 0 && quant::BitsOf(to) < 32) {
    low = quant::RangeOf(to).lo;
    high = quant::RangeOf(to).hi;
  } else if (to == DType::kS32 || to == DType::kU32) {
    low = to == DType::kS32 ? INT32_MIN : 0;
    high = INT32_MAX;
  } else if (to != DType::kS64 && to != DType::kF64) {
    return;
  }
  const bool symbols_fit = to == DType::kF32 || to == DType::kF64 || to == DType::kS32 || to == DType::kS64;
  Map(c, [=](const Dim& d) {
    if (d.is_number() ? d.number() < low || d.number() > high : !symbols_fit) return Dim();
    return d;
  });
}

void Where(Inferrer& c) {
  const SymContents* condition = c.Contents(0);
  const SymContents* yes = c.Contents(1);
  const SymContents* no = c.Contents(2);
  if (condition == nullptr || yes == nullptr || no == nullptr) return;
  const auto values = CommonLength(yes->size(), no->size());
  const auto count = values ? CommonLength(condition->size(), *values) : std::nullopt;
  if (!count) return;
  SymContents out;
  for (size_t i = 0; i < *count; ++i) {
    const Dim& which = At(*condition, i);
    const Dim& a = At(*yes, i);
    const Dim& b = At(*no, i);
    if (which.is_number()) {
      out.push_back(which.number() != 0 ? a : b);
    } else {
      out.push_back(ProvablyEqual(a, b) ? a : Dim());
    }
  }
  c.SetContents(0, std::move(out));
}

// Over all elements of a list; other reductions have outputs of no use as sizes.
void Reduce(Inferrer& c) {
  const SymContents* from = c.Contents(0);
  const SymShape* shape = c.ShapeOf(0);
  if (from == nullptr || shape == nullptr || c.node().attrs.Int("noop_with_empty_axes", 0) != 0) return;
  if (from->empty() && c.node().op != Op::kReduceProd && c.node().op != Op::kReduceSum) return;
  if (shape->empty()) return c.SetContents(0, *from);
  Dim out = c.node().op == Op::kReduceProd ? Dim(1) : c.node().op == Op::kReduceSum ? Dim(0) : (*from)[0];
  for (const Dim& d : *from) {
    switch (c.node().op) {
      case Op::kReduceProd:
        out = out * d;
        break;
      case Op::kReduceSum:
        out = out + d;
        break;
      case Op::kReduceMin:
        out = Smaller(out, d);
        break;
      default:
        out = Larger(out, d);
    }
  }
  c.SetContents(0, {std::move(out)});
}

// Bounds are optional inputs 1 and 2.
void Clip(Inferrer& c) {
  const SymContents* low = c.Contents(1);
  const SymContents* high = c.Contents(2);
  if ((c.Has(1) && (low == nullptr || low->size() != 1)) || (c.Has(2) && (high == nullptr || high->size() != 1)))
    return;
  Map(c, [&](Dim d) {
    if (low != nullptr) d = Larger(d, (*low)[0]);
    if (high != nullptr) d = Smaller(d, (*high)[0]);
    return d;
  });
}

}  // namespace

void InferArithmetic(Inferrer& c) {
  switch (c.node().op) {
    case Op::kAdd:
    case Op::kAnd:
    case Op::kDiv:
    case Op::kEqual:
    case Op::kGreater:
    case Op::kGreaterOrEqual:
    case Op::kLess:
    case Op::kLessOrEqual:
    case Op::kMax:
    case Op::kMin:
    case Op::kMod:
    case Op::kMul:
    case Op::kOr:
    case Op::kPow:
    case Op::kSub:
    case Op::kSum:
    case Op::kXor:
      return Fold(c);
    case Op::kNeg:
      return Map(c, [](const Dim& d) { return Dim(0) - d; });
    case Op::kAbs:
      return Map(c, [](const Dim& d) { return Larger(d, Dim(0) - d); });
    case Op::kRelu:
      return Map(c, [](const Dim& d) { return Larger(d, Dim(0)); });
    case Op::kNot:
      return Map(c, [](const Dim& d) { return d.is_number() ? Dim(d.number() == 0 ? 1 : 0) : Dim(); });
    case Op::kCeil:
    case Op::kFloor:
    case Op::kRound:
      return Map(c, [](const Dim& d) { return d; });  // whole already
    case Op::kCast:
    case Op::kCastLike:
      return Cast(c);
    case Op::kClip:
      return Clip(c);
    case Op::kReduceMax:
    case Op::kReduceMin:
    case Op::kReduceProd:
    case Op::kReduceSum:
      return Reduce(c);
    case Op::kWhere:
      return Where(c);
    default:
      return;
  }
}

}  // namespace octavo::ir
