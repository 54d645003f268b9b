// Integers behind floats through views, and elements that are no plain bytes (strings, 4 and 2 bits) through moving ops.
#include <map>
#include <string>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/packed.h"
#include "octavo/ir/interpret/strings.h"

namespace octavo::ir::interpret {

namespace {

// The axis after the op; -1: it cannot be followed.
int64_t FollowAxis(const Call& call, int64_t axis) {
  const Shape& from = call.in[0].tensor.shape();
  const auto rank = static_cast<int64_t>(from.size());
  switch (call.node.op) {
    case Op::kIdentity:
      return axis;
    case Op::kTranspose: {
      const std::vector<int64_t> perm = call.node.attrs.Ints("perm");
      if (perm.empty()) return rank - 1 - axis;
      for (int64_t i = 0; i < rank; ++i) {
        if (perm[static_cast<size_t>(i)] == axis) return i;
      }
      return -1;
    }
    case Op::kUnsqueeze:
    case Op::kSqueeze: {
      // Dims of size 1 come and go: the quantized axis is the one with as many dims larger than 1 before it. A
      // per-axis form never has size 1 there (quantize.cc).
      int64_t larger = 0;
      for (int64_t i = 0; i < axis; ++i) larger += from[static_cast<size_t>(i)] != 1;
      const Shape& to = call.out[0].tensor.shape();
      for (size_t i = 0; i < to.size(); ++i) {
        if (to[i] != 1 && larger-- == 0) return static_cast<int64_t>(i);
      }
      return -1;
    }
    default:
      return -1;
  }
}

bool SameParameters(const QuantForm& a, const QuantForm& b) {
  return a.axis == -1 && b.axis == -1 && a.q.dtype() == b.q.dtype() && a.scale.SameBits(b.scale) &&
         (quant::IsFp8(a.q.dtype()) || a.zero_point.GetInt(0) == b.zero_point.GetInt(0));
}

}  // namespace

void CarryQuantForms(Call& call, Evaluator evaluate) {
  const QuantForm* form = call.in[0].quant.get();
  if (form == nullptr) return;
  const bool all = call.node.op == Op::kConcat;  // every operand is data
  if (all) {
    for (const RtValue& v : call.in) {
      if (v.quant == nullptr || !SameParameters(*form, *v.quant)) return;
    }
  }
  int64_t axis = -1;
  if (form->axis >= 0) {
    axis = FollowAxis(call, form->axis);
    if (axis < 0) return;
  }
  std::vector<RtValue> integers(call.in.begin(), call.in.end());
  for (size_t i = 0; i < (all ? integers.size() : 1); ++i) integers[i] = {call.in[i].quant->q, nullptr};
  Call moved{call.graph, call.node, integers, std::vector<RtValue>(call.out.size()), call.interrupted};
  if (!evaluate(moved)) return;
  for (size_t i = 0; i < call.out.size(); ++i) {
    if (!moved.out[i].tensor.defined()) continue;
    call.out[i].quant = std::make_shared<const QuantForm>(
        QuantForm{std::move(moved.out[i].tensor), form->scale, form->zero_point, axis});
  }
}

namespace {

bool OnlyMoves(Op op) {
  switch (op) {
    case Op::kTranspose:
    case Op::kConcat:
    case Op::kSlice:
    case Op::kSplit:
    case Op::kGather:
    case Op::kGatherElements:
    case Op::kGatherND:
    case Op::kScatterElements:
    case Op::kScatterND:
    case Op::kExpand:
    case Op::kTile:
    case Op::kWhere:
    case Op::kCompress:
    case Op::kPad:
    case Op::kEqual:
    case Op::kOneHot:
    case Op::kDepthToSpace:
    case Op::kSpaceToDepth:
    case Op::kReverseSequence:
    case Op::kCenterCropPad:
      return true;
    default:
      return false;
  }
}

// Whether operand `i` of an op that takes strings may be strings: data, as opposed to indices, sizes and conditions.
bool IsData(Op op, size_t i) {
  switch (op) {
    case Op::kConcat:
    case Op::kEqual:
    case Op::kStringConcat:
    case Op::kIf:
    case Op::kLoop:
    case Op::kScan:
      return true;
    case Op::kCastLike:
      return i < 2;
    case Op::kWhere:
      return i > 0;
    case Op::kScatterElements:
    case Op::kScatterND:
      return i != 1;
    case Op::kPad:
      return i == 0 || i == 2;
    case Op::kOneHot:
      return i == 2;
    case Op::kCast:
    case Op::kShape:
    case Op::kSize:
    case Op::kIdentity:
    case Op::kReshape:
    case Op::kFlatten:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kUnique:
    case Op::kStringSplit:
    case Op::kStringNormalizer:
    case Op::kTfIdfVectorizer:
    case Op::kLabelEncoder:
      return i == 0;
    default:
      return OnlyMoves(op) && i == 0;
  }
}

// Numbers for strings: equal strings have equal numbers; "" is 0, so that zero fill means the empty string.
class StringNumbers {
 public:
  StringNumbers() { Number(""); }
  Tensor Encode(const Tensor& t) {
    Tensor out = Tensor::Empty(DType::kS64, t.shape());
    auto to = out.mutable_as<int64_t>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = Number(t.strings()[i]);
    return out;
  }
  Tensor Decode(const Tensor& t) const {
    size_t bytes = 0;
    for (int64_t i : t.as<int64_t>()) bytes += words_[static_cast<size_t>(i)]->size();
    ChargeWords(static_cast<size_t>(t.size()), bytes);
    std::vector<std::string> words;
    for (int64_t i : t.as<int64_t>()) words.push_back(*words_[static_cast<size_t>(i)]);
    return Tensor::Strings(t.shape(), std::move(words));
  }

 private:
  int64_t Number(const std::string& word) {
    const auto [it, fresh] = numbers_.try_emplace(word, static_cast<int64_t>(words_.size()));
    if (fresh) words_.push_back(&it->first);
    return it->second;
  }
  std::map<std::string, int64_t> numbers_;
  std::vector<const std::string*> words_;
};

}  // namespace

Status EvaluateMoved(Call& call, Evaluator evaluate) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (call.T(i).dtype() == DType::kString && !IsData(call.node.op, i))
      return Fail("operand {} must not be strings", i);
  }
  DType special = DType::kUndefined;
  for (size_t i = 0; OnlyMoves(call.node.op) && i < call.in.size(); ++i) {
    const DType t = call.T(i).dtype();
    if (IsData(call.node.op, i) && (t == DType::kString || quant::IsPacked(t))) special = t;
  }
  if (special == DType::kUndefined) return evaluate(call);
  if (special == DType::kString && !call.node.attrs.Str("reduction", "none").starts_with("none")) {
    return Fail("strings cannot be reduced");
  }
  StringNumbers numbers;
  std::vector<RtValue> plain(call.in.begin(), call.in.end());
  for (size_t i = 0; i < plain.size(); ++i) {
    Tensor& t = plain[i].tensor;
    if (!IsData(call.node.op, i) || !t.defined()) continue;
    if (t.dtype() != special) return Fail("the operands have different element types");
    t = special == DType::kString ? numbers.Encode(t) : Unpack(t);
  }
  Call moved{call.graph, call.node, plain, std::vector<RtValue>(call.out.size()), call.interrupted};
  OCTAVO_TRY_STATUS(evaluate(moved));
  for (size_t i = 0; i < call.out.size(); ++i) {
    Tensor& t = moved.out[i].tensor;
    if (special == DType::kString && t.dtype() == DType::kS64) {
      t = numbers.Decode(t);
    } else if (special != DType::kString && t.dtype() == ByteTypeOf(special)) {
      t = Pack(t, special);
    }
    call.out[i] = std::move(moved.out[i]);
  }
  return {};
}

}  // namespace octavo::ir::interpret
