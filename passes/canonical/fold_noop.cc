// fold, second part: nodes that hand an input on unchanged.
// Before: y = Identity(x) | Cast(x) to its own type | Dropout(x) outside training | Reshape/Expand/Transpose/Slice/Pad/
//         Tile/Concat that changes nothing | x*1, x/1, x-0 | integer x+0 | Max(x, -inf) | Where(IsNaN(x), c, x) of dequantized integers
// After:  x
// Symbolic shapes decide: "provably the same", never "the same for the shapes seen". x + (+0.0) stays, for it turns -0
// into +0; x + (-0.0) and x - (+0.0) go. NaN payloads may differ, as ONNX leaves them open.
#include <cmath>

#include "octavo/passes/canonical/fold.h"

namespace octavo::passes::canonical {

namespace {

bool AllAre(const Graph& g, ValueId v, int64_t n) {
  const auto ints = ConstInts(g, v);
  if (!ints) return false;
  for (int64_t i : *ints) {
    if (i != n) return false;
  }
  return true;
}

bool IsView(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten:
    case Op::kExpand:
      return true;
    case Op::kSlice:  // a slice of the whole length with step 1 is the whole
      return !n.input(4).valid() || AllAre(g, n.input(4), 1);
    case Op::kPad:
      return AllAre(g, n.input(1), 0);
    case Op::kTile:
      return AllAre(g, n.input(1), 1);
    case Op::kConcat:
      return n.inputs.size() == 1;
    case Op::kTranspose: {
      const int64_t rank = RankOf(g, n.input(0));
      return rank >= 0 && IsIdentityPerm(PermOf(n, rank));
    }
    default:
      return false;
  }
}

// The operand that the arithmetic leaves as it is, with the shape of the result.
ValueId NeutralOperand(const Graph& g, const Node& n) {
  const auto right = ConstScalar(g, n.input(1));
  const auto left = ConstScalar(g, n.input(0));
  const DType dtype = DTypeOf(g, n.output());
  const bool integer = IsPlainInteger(dtype);
  const auto is_zero = [integer](const std::optional<double>& c, bool negative) {
    return c && *c == 0 && (integer || std::signbit(*c) == negative);
  };
  switch (n.op) {
    case Op::kMul:
      return right == 1.0 ? n.input(0) : left == 1.0 ? n.input(1) : ValueId{};
    case Op::kDiv:
      return right == 1.0 ? n.input(0) : ValueId{};
    case Op::kAdd:
      return is_zero(right, true) ? n.input(0) : is_zero(left, true) ? n.input(1) : ValueId{};
    case Op::kSub:
      return is_zero(right, false) ? n.input(0) : ValueId{};
    case Op::kMax:
    case Op::kMin: {
      const double end = n.op == Op::kMax ? -INFINITY : INFINITY;
      return right == end ? n.input(0) : left == end ? n.input(1) : ValueId{};
    }
    default:
      return {};
  }
}

// Every value of `from` exists in `to`, so that Cast_c(Cast_to(x)) is Cast_c(x).
bool LosesNothing(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::kBool) return IsPlainInteger(to) || IsPlainFloat(to);
  const int bits_from = quant::BitsOf(from), bits_to = quant::BitsOf(to);
  if (IsPlainFloat(from)) {
    return (to == DType::kF64) || (to == DType::kF32 && from != DType::kF64);
  }
  if (!IsPlainInteger(from)) return false;
  const auto is_unsigned = [](DType d) {
    return d == DType::kU8 || d == DType::kU16 || d == DType::kU32 || d == DType::kU64;
  };
  if (IsPlainInteger(to)) {
    return is_unsigned(from) ? bits_to > bits_from || (is_unsigned(to) && bits_to == bits_from)
                             : !is_unsigned(to) && bits_to >= bits_from;
  }
  return (to == DType::kF32 && bits_from <= 16) || (to == DType::kF64 && bits_from <= 32);
}

// Codes of integers times a finite scale.
bool IsNeverNan(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op != Op::kDequantizeLinear || !IsPlainInteger(DTypeOf(g, n->input(0)))) return false;
  const auto scale = ConstScalar(g, n->input(1));
  return scale && std::isfinite(*scale);
}

bool IsTraining(const Graph& g, const Node& dropout) {
  return dropout.input(2).valid() && !AllAre(g, dropout.input(2), 0);
}

}  // namespace

ValueId UnchangedInput(const Graph& g, const Node& n) {
  const ValueId x = n.input(0), y = n.output();
  if (!x.valid() || !y.valid()) return {};
  switch (n.op) {
    case Op::kIdentity:
      return x;
    case Op::kCast:
      return DTypeOf(g, x) != DType::kUndefined && n.attrs.Int("to", 0) == static_cast<int64_t>(DTypeOf(g, x))
                 ? x
                 : ValueId{};
    case Op::kDropout:
      return !IsTraining(g, n) && !HasUses(g, n.output(1)) ? x : ValueId{};
    case Op::kWhere: {  // a guard against NaN where there can be none
      const Node* is_nan = g.Producer(x);
      const ValueId kept = n.input(2);
      const bool guard = is_nan != nullptr && is_nan->op == Op::kIsNaN && is_nan->input(0) == kept;
      return guard && IsNeverNan(g, kept) && SameShape(g, kept, y) ? kept : ValueId{};
    }
    case Op::kNot:
      return g.IsFrom(x, Op::kNot) ? g.Producer(x)->input(0) : ValueId{};
    case Op::kMul:
    case Op::kDiv:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMax:
    case Op::kMin: {
      const ValueId same = NeutralOperand(g, n);
      return same.valid() && SameShape(g, same, y) ? same : ValueId{};
    }
    case Op::kTranspose:
      return IsView(g, n) ? x : ValueId{};
    default:
      return IsView(g, n) && SameShape(g, x, y) ? x : ValueId{};
  }
}

bool SimplifyCastOrConcat(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op == Op::kCastLike) {
    const DType to = DTypeOf(g, n.input(1));
    if (to == DType::kUndefined) return false;
    Type type = TypeOf(g, n.output());
    type.dtype = to;
    Attrs attrs = n.attrs;  // saturate and round_mode stay
    attrs.Set("to", static_cast<int64_t>(to));
    ReplaceNode(rw, id,
                DTypeOf(g, n.input(0)) == to ? n.input(0)
                                             : Make(rw, Op::kCast, {n.input(0)}, std::move(attrs), std::move(type)));
    return true;
  }
  if (n.op == Op::kCast && g.IsFrom(n.input(0), Op::kCast)) {
    const ValueId source = g.Producer(n.input(0))->input(0);
    const DType from = DTypeOf(g, source), middle = DTypeOf(g, n.input(0));
    const bool plain = IsPlainFloat(from) || IsPlainInteger(from) || from == DType::kBool;
    if (!plain || middle == DType::kUndefined || !LosesNothing(from, middle)) return false;
    if (g.ConstantOf(source) != nullptr) return false;  // evaluated, or kept for its size
    const NodeId inner = g.value(n.input(0)).producer;
    rw.SetInput(id, 0, source);
    rw.EraseDead(inner);
    return true;
  }
  if (n.op == Op::kConcat && n.inputs.size() > 1) {
    const int64_t rank = RankOf(g, n.output());
    if (rank < 1) return false;
    const int64_t axis = n.attrs.Int("axis", 0) + (n.attrs.Int("axis", 0) < 0 ? rank : 0);
    std::vector<ValueId> kept;
    for (ValueId v : n.inputs) {
      const SymShape* s = ShapeOf(g, v);
      if (s == nullptr || !IsNumber((*s)[static_cast<size_t>(axis)], 0)) kept.push_back(v);
    }
    if (kept.size() == n.inputs.size() || kept.empty()) return false;
    ReplaceNode(rw, id, Make(rw, Op::kConcat, std::move(kept), n.attrs, TypeOf(g, n.output())));
    return true;
  }
  return false;
}

}  // namespace octavo::passes::canonical
