// Rules of element-wise ops: the shape is the broadcast of the inputs', the type that of the first or bool.
#include <numeric>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

constexpr size_t kBoth[] = {0, 1};

Status Binary(Inferrer& c, DType dtype) {
  OCTAVO_TRY(MaybeShape shape, Broadcast(c, kBoth));
  c.Set(0, dtype, std::move(shape));
  return {};
}
Status Arithmetic(Inferrer& c) {
  OCTAVO_TRY(const DType type, CommonType(c, kBoth));
  return Binary(c, type);
}
Status FirstType(Inferrer& c) { return Binary(c, c.DtypeOf(0)); }
Status Logic(Inferrer& c) {
  OCTAVO_TRY([[maybe_unused]] const DType type, CommonType(c, kBoth));
  return Binary(c, DType::kBool);
}

Status Variadic(Inferrer& c) {
  if (c.node().inputs.empty()) return c.Refuse("it has no inputs");
  std::vector<size_t> all(c.node().inputs.size());
  std::iota(all.begin(), all.end(), size_t{0});
  OCTAVO_TRY(const DType type, CommonType(c, all));
  OCTAVO_TRY(MaybeShape shape, Broadcast(c, all));
  c.Set(0, type, std::move(shape));
  return {};
}

Status BoolOfFirst(Inferrer& c) {
  c.Set(0, DType::kBool, c.CopyOf(0));
  return {};
}

Status Cast(Inferrer& c) {
  c.Set(0, DTypeOfAttr(c, "to"), c.CopyOf(0));
  return {};
}

// RMSNormalization too: ONNX gives its result the type of the scale.
Status TypeOfSecond(Inferrer& c) {
  c.Set(0, c.DtypeOf(1), c.CopyOf(0));
  return {};
}

Status Where(Inferrer& c) {
  constexpr size_t kAll[] = {0, 1, 2};
  OCTAVO_TRY(const DType type, CommonType(c, std::span(kAll).subspan(1)));
  OCTAVO_TRY(MaybeShape shape, Broadcast(c, kAll));
  c.Set(0, type, std::move(shape));
  return {};
}

Status Dropout(Inferrer& c) {
  c.Set(0, c.DtypeOf(0), c.CopyOf(0));
  c.Set(1, DType::kBool, c.CopyOf(0));
  return {};
}

}  // namespace

Rule ElementwiseRule(Op op) {
  if (op <= Op::kBitCast) {  // the unary block of ops.def
    if (op == Op::kCast || op == Op::kBitCast) return Cast;
    return op == Op::kIsInf || op == Op::kIsNaN ? BoolOfFirst : SameAsFirst;
  }
  switch (op) {
    case Op::kAdd:
    case Op::kBitwiseAnd:
    case Op::kBitwiseOr:
    case Op::kBitwiseXor:
    case Op::kBitShift:
    case Op::kDiv:
    case Op::kMod:
    case Op::kMul:
    case Op::kSub:
      return Arithmetic;
    case Op::kPow:
      return FirstType;
    case Op::kAnd:
    case Op::kEqual:
    case Op::kGreater:
    case Op::kGreaterOrEqual:
    case Op::kLess:
    case Op::kLessOrEqual:
    case Op::kOr:
    case Op::kXor:
      return Logic;
    case Op::kMax:
    case Op::kMean:
    case Op::kMin:
    case Op::kSum:
      return Variadic;
    case Op::kPRelu:
    case Op::kClip:
    case Op::kSwiGLU:
    case Op::kCumProd:
    case Op::kCumSum:
    case Op::kTrilu:
    case Op::kScatterElements:
    case Op::kScatterND:
    case Op::kTensorScatter:
    case Op::kSoftmax:
    case Op::kLogSoftmax:
    case Op::kHardmax:
    case Op::kReverseSequence:
    case Op::kLpNormalization:
    case Op::kLRN:
    case Op::kMeanVarianceNormalization:
    case Op::kBinarizer:
    case Op::kInstanceNormalization:
    case Op::kGroupNormalization:
    case Op::kRotaryEmbedding:
      return SameAsFirst;
    case Op::kCastLike:
    case Op::kRMSNormalization:
      return TypeOfSecond;
    case Op::kWhere:
      return Where;
    case Op::kDropout:
      return Dropout;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
