// ONNX's ops of opset 1 to 6 in the form of opset 7, where numpy's broadcasting begins.
#include <algorithm>
#include <array>

#include "octavo/ir/onnx/opset.h"
#include "octavo/ir/onnx/upgrade.h"

namespace octavo::ir::onnx {

namespace {

Status Refuse(const Draft& d, std::string_view what) {
  return Fail("{} of opset {} {}; octavo reads it of opset {} or later, so export it again", d.op_type, d.version, what,
              kMinOpset);
}

// An attribute of integers that opset 7 does not have. One of another kind stays, and is refused with the unknown ones.
int64_t TakeInt(Draft& d, std::string_view name, int64_t fallback) {
  const Attr* a = d.attrs.Find(name);
  const auto* value = a == nullptr ? nullptr : std::get_if<int64_t>(a);
  if (value == nullptr) return fallback;
  fallback = *value;
  d.attrs.Erase(name);
  return fallback;
}

// The second operand lay along the dims of the first from `axis` on; now shapes are aligned at their ends.
Status Broadcast(Draft& d, GraphBuilder& b) {
  const bool given = d.attrs.Has("axis");
  const int64_t broadcast = TakeInt(d, "broadcast", 0), axis = TakeInt(d, "axis", 0);
  if (broadcast == 0 || !given) return {};
  if (axis < 0) return Refuse(d, "has an axis that is counted from the end");
  if (!d.input(0).valid() || !d.input(1).valid()) return Refuse(d, "lacks an operand");
  const auto rank = [&](size_t i, std::string_view hint) {
    const ValueId shape = b.Emit(d, std::string(hint) + "_shape", Op::kShape, {d.input(i)});
    return b.Emit(d, std::string(hint) + "_rank", Op::kShape, {shape});
  };
  const ValueId behind = b.Emit(d, "behind", Op::kSub, {rank(0, "first"), b.Ints(d, "axis", {axis})});
  const ValueId count = b.Emit(d, "ones_count", Op::kSub, {behind, rank(1, "second")});
  const ValueId ones = b.Emit(d, "ones", Op::kConstantOfShape, {count}, {{"value", Tensor::S64({1}, {1})}});
  const ValueId shape = b.Emit(d, "old_shape", Op::kShape, {d.input(1)});
  const ValueId target = b.Emit(d, "new_shape", Op::kConcat, {shape, ones}, {{"axis", int64_t{0}}});
  d.inputs[1] = b.Emit(d, "aligned", Op::kReshape, {d.input(1), target});
  return {};
}

Status AtInference(Draft& d, GraphBuilder&) {
  return TakeInt(d, "is_test", 0) == 0 ? Refuse(d, "is in training mode (is_test is 0)") : Status();
}

Status PlainGemm(Draft& d, GraphBuilder&) {
  TakeInt(d, "broadcast", 0);
  return {};
}

Status CastByName(Draft& d, GraphBuilder&) {
  const Attr* to = d.attrs.Find("to");
  const auto* name = to == nullptr ? nullptr : std::get_if<std::string>(to);
  if (name == nullptr) return d.version < 6 ? Refuse(d, "names no type") : Status();
  constexpr std::array<std::string_view, 14> kNames = {"UNDEFINED", "FLOAT",  "UINT8",  "INT8",   "UINT16",
                                                       "INT16",     "INT32",  "INT64",  "STRING", "BOOL",
                                                       "FLOAT16",   "DOUBLE", "UINT32", "UINT64"};
  const auto at = std::ranges::find(kNames, *name);
  if (at == kNames.end() || at == kNames.begin()) return Refuse(d, "names a type that there is none of");
  d.attrs.Set("to", static_cast<int64_t>(at - kNames.begin()));
  return {};
}

Status JoinedAlongOne(Draft& d, GraphBuilder&) {
  if (d.version < 4 && !d.attrs.Has("axis")) d.attrs.Set("axis", int64_t{1});
  return {};
}

Status Paddings(Draft& d, GraphBuilder&) {
  if (d.version >= 2) return {};
  const Attr* a = d.attrs.Find("paddings");
  if (a == nullptr || !std::holds_alternative<std::vector<int64_t>>(*a)) return Refuse(d, "has no paddings");
  d.attrs.Set("pads", d.attrs.Ints("paddings"));
  d.attrs.Erase("paddings");
  return {};
}

Status ShapeAttribute(Draft& d, GraphBuilder& b) {
  if (d.version >= 5) return {};
  const Attr* a = d.attrs.Find("shape");
  if (a == nullptr || !std::holds_alternative<std::vector<int64_t>>(*a) || d.inputs.size() != 1)
    return Refuse(d, "has no shape");
  d.inputs.push_back(b.Ints(d, "shape", d.attrs.Ints("shape")));
  d.attrs.Erase("shape");
  return {};
}

Status OlderDefaults(Draft& d, GraphBuilder&) {
  if (d.version >= 6) return {};
  d.attrs.Set("alpha", d.attrs.Float("alpha", 1.6732f));
  d.attrs.Set("gamma", d.attrs.Float("gamma", 1.0507f));
  return {};
}

// One slope for all, or one for each channel: dim 1.
Status SlopePerChannel(Draft& d, GraphBuilder& b) {
  if (d.inputs.size() != 2) return Refuse(d, "has no slope");
  const Tensor* slope = b.graph().ConstantOf(d.input(1));
  if (slope == nullptr || slope->rank() > 1) return Refuse(d, "has a slope that is no vector of constants");
  if (slope->size() == 1) return {};
  d.attrs.Set("broadcast", int64_t{1});
  d.attrs.Set("axis", int64_t{1});
  return Broadcast(d, b);
}

struct Entry {
  std::string_view op;
  int64_t since;  // from here on octavo reads it
  UpgradeRule rule = nullptr;
};
constexpr Entry kBefore7[] = {
    {"Abs", 1},
    {"Add", 1, Broadcast},
    {"And", 1, Broadcast},
    {"ArgMax", 1},
    {"ArgMin", 1},
    {"AveragePool", 1},
    {"BatchNormalization", 1, AtInference},
    {"Cast", 1, CastByName},
    {"Ceil", 1},
    {"Clip", 1},
    {"Concat", 1, JoinedAlongOne},
    {"Conv", 1},
    {"ConvTranspose", 1},
    {"DepthToSpace", 1},
    {"Div", 1, Broadcast},
    {"Dropout", 1, AtInference},
    {"Elu", 1},
    {"Equal", 1, Broadcast},
    {"Exp", 1},
    {"Flatten", 1},
    {"Floor", 1},
    {"Gather", 1},
    {"Gemm", 1, PlainGemm},
    {"GlobalAveragePool", 1},
    {"GlobalMaxPool", 1},
    {"Greater", 1, Broadcast},
    {"HardSigmoid", 1},
    {"Hardmax", 1},
    {"Identity", 1},
    {"If", 1},
    {"InstanceNormalization", 1},
    {"LRN", 1},
    {"LeakyRelu", 1},
    {"Less", 1, Broadcast},
    {"Log", 1},
    {"LogSoftmax", 1},
    {"Loop", 1},
    {"LpNormalization", 1},
    {"MatMul", 1},
    {"Max", 1},
    {"MaxPool", 1},
    {"Mean", 1},
    {"Min", 1},
    {"Mul", 1, Broadcast},
    {"Neg", 1},
    {"Not", 1},
    {"Or", 1, Broadcast},
    {"PRelu", 1, SlopePerChannel},
    {"Pad", 1, Paddings},
    {"Pow", 1, Broadcast},
    {"Reciprocal", 1},
    {"ReduceL1", 1},
    {"ReduceL2", 1},
    {"ReduceLogSum", 1},
    {"ReduceLogSumExp", 1},
    {"ReduceMax", 1},
    {"ReduceMean", 1},
    {"ReduceMin", 1},
    {"ReduceProd", 1},
    {"ReduceSum", 1},
    {"ReduceSumSquare", 1},
    {"Relu", 1},
    {"Reshape", 1, ShapeAttribute},
    {"Selu", 1, OlderDefaults},
    {"Shape", 1},
    {"Sigmoid", 1},
    {"Size", 1},
    {"Slice", 1},
    {"Softmax", 1},
    {"Softplus", 1},
    {"Softsign", 1},
    {"SpaceToDepth", 1},
    {"Split", 2},
    {"Sqrt", 1},
    {"Squeeze", 1},
    {"Sub", 1, Broadcast},
    {"Sum", 1},
    {"Tanh", 1},
    {"Tile", 6},
    {"TopK", 1},
    {"Transpose", 1},
    {"Unsqueeze", 1},
    {"Xor", 1, Broadcast},
};

}  // namespace

Status FromBefore7(Draft& d, GraphBuilder& b) {
  const auto* const entry = std::ranges::find(kBefore7, std::string_view(d.op_type), &Entry::op);
  if (entry == std::end(kBefore7) || d.version < entry->since) return Refuse(d, "has a form of its own");
  d.attrs.Erase("consumed_inputs");  // a hint for memory
  if (entry->rule != nullptr) OCTAVO_TRY_STATUS(entry->rule(d, b));
  d.version = kMinOpset;
  return {};
}

}  // namespace octavo::ir::onnx
