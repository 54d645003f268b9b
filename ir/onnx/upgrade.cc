// ONNX's own ops of opset 7 to 17 in the form of ops.def. Each rule names the first opset that has the new form.
#include "octavo/ir/onnx/upgrade.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ir/onnx/import.h"

namespace octavo::ir::onnx {

namespace {

void Take(Draft& d, std::string_view attr) { d.attrs.Erase(attr); }

// An attribute of integers becomes input `slot`.
void IntsToInput(Draft& d, GraphBuilder& b, std::string_view attr, size_t slot) {
  if (!d.attrs.Has(attr)) return;
  const ValueId v = b.Ints(d, attr, d.attrs.Ints(attr));
  if (d.inputs.size() <= slot) d.inputs.resize(slot + 1);
  d.inputs[slot] = v;
  Take(d, attr);
}

// A float that must have the element type of `like`.
ValueId FloatLike(const Draft& d, GraphBuilder& b, std::string_view hint, float value, ValueId like) {
  const ValueId f = b.Constant(d, hint, Tensor::ScalarF32(value));
  if (b.DTypeOf(like) == DType::kF32) return f;
  return b.Emit(d, std::string(hint) + "_like", Op::kCastLike, {f, like});
}

Status Axes(Draft& d, GraphBuilder& b) {
  IntsToInput(d, b, "axes", 1);
  return {};
}
Status ReduceAxes(Draft& d, GraphBuilder& b) {
  if (d.attrs.Ints("axes").empty()) Take(d, "axes");  // all axes
  return Axes(d, b);
}
Status SplitSizes(Draft& d, GraphBuilder& b) {
  IntsToInput(d, b, "split", 1);
  return {};
}
Status SplitCount(Draft& d, GraphBuilder& b) {
  OCTAVO_TRY_STATUS(SplitSizes(d, b));
  if (!d.input(1).valid()) d.attrs.Set("num_outputs", static_cast<int64_t>(d.outputs.size()));
  return {};
}
Status SliceInputs(Draft& d, GraphBuilder& b) {
  if (!d.attrs.Has("starts") || !d.attrs.Has("ends")) return Fail("it has no starts or no ends");
  IntsToInput(d, b, "starts", 1);
  IntsToInput(d, b, "ends", 2);
  IntsToInput(d, b, "axes", 3);
  return {};
}
Status PadInputs(Draft& d, GraphBuilder& b) {
  if (!d.attrs.Has("pads")) return Fail("it has no pads");
  IntsToInput(d, b, "pads", 1);
  const float value = d.attrs.Float("value", 0.0f);
  Take(d, "value");
  if (value != 0.0f) {
    d.inputs.resize(3);
    d.inputs[2] = FloatLike(d, b, "value", value, d.input(0));
  }
  return {};
}
Status ClipInputs(Draft& d, GraphBuilder& b) {
  const float lo = d.attrs.Float("min", std::numeric_limits<float>::lowest());
  const float hi = d.attrs.Float("max", std::numeric_limits<float>::max());
  const bool has_lo = d.attrs.Has("min");
  const bool has_hi = d.attrs.Has("max");
  Take(d, "min");
  Take(d, "max");
  d.inputs.resize(1);
  if (has_lo || has_hi) d.inputs.push_back(has_lo ? FloatLike(d, b, "min", lo, d.input(0)) : ValueId{});
  if (has_hi) d.inputs.push_back(FloatLike(d, b, "max", hi, d.input(0)));
  return {};
}
Status TopKInput(Draft& d, GraphBuilder& b) {
  if (!d.attrs.Has("k")) return Fail("it has no k");
  d.inputs.resize(1);
  d.inputs.push_back(b.Ints(d, "k", {d.attrs.Int("k", 0)}));
  Take(d, "k");
  return {};
}
// Before opset 12 it never drops anything at inference, whatever the ratio.
Status DropoutInputs(Draft& d, GraphBuilder& b) {
  if (d.attrs.Has("ratio")) {
    d.inputs.resize(1);
    d.inputs.push_back(b.Constant(d, "ratio", Tensor::ScalarF32(d.attrs.Float("ratio", 0.5f))));
    Take(d, "ratio");
  }
  if (d.version < 10 && d.wants(1))
    return Fail("its mask is a float before opset 10; export it with opset 12 or later");
  return {};
}
Status SoftmaxAxes(Draft& d, GraphBuilder&) {
  d.attrs.Set("axis", d.attrs.Int("axis", 1));
  d.attrs.Set(kFlattenSoftmax, int64_t{1});  // softmax_form.cc, when ranks are known
  return {};
}
// Always flattened, which is exact.
Status HardmaxAxes(Draft& d, GraphBuilder& b) {
  const int64_t axis = d.attrs.Int("axis", 1);
  if (axis == -1) return {};
  const ValueId flat = b.Emit(d, "flat", Op::kFlatten, {d.input(0)}, {{"axis", axis}});
  const ValueId shape = b.Emit(d, "shape", Op::kShape, {d.input(0)});
  const ValueId hard = b.Emit(d, "hardmax", Op::kHardmax, {flat}, {{"axis", int64_t{-1}}});
  d.op_type = "Reshape";
  d.inputs = {hard, shape};
  d.attrs = {};
  return {};
}
Status BatchNorm(Draft& d, GraphBuilder&) {
  if (d.attrs.Int("spatial", 1) != 1) return Fail("spatial=0 is gone since opset 9; export it with opset 9 or later");
  Take(d, "spatial");
  if (d.wants(1) || d.wants(2) || d.wants(3) || d.wants(4)) {
    return Fail("it is in training mode; export the model for inference");
  }
  d.outputs.resize(1);
  return {};
}
Status ScatterToElements(Draft& d, GraphBuilder&) {
  d.op_type = "ScatterElements";
  return {};
}
Status GroupNormPerChannel(Draft& d, GraphBuilder& b) {
  if (d.inputs.size() != 3) return Fail("it has {} inputs, not 3", d.inputs.size());
  // Scale and bias of group g hold for its C/G channels; since opset 21 they are given per channel.
  const ValueId channels =
      b.Emit(d, "channels", Op::kShape, {d.input(0)}, {{"end", int64_t{2}}, {"start", int64_t{1}}});
  const ValueId per_group =
      b.Emit(d, "per_group", Op::kDiv, {channels, b.Ints(d, "groups", {d.attrs.Int("num_groups", 1)})});
  const ValueId target = b.Emit(d, "target", Op::kConcat, {b.Ints(d, "one", {1}), per_group}, {{"axis", int64_t{0}}});
  const ValueId flat = b.Ints(d, "flat", {-1});
  for (size_t i : {size_t{1}, size_t{2}}) {
    const std::string which = i == 1 ? "scale" : "bias";
    const ValueId column = b.Emit(d, which + "_column", Op::kUnsqueeze, {d.input(i), b.Ints(d, which + "_axis", {1})});
    const ValueId wide = b.Emit(d, which + "_wide", Op::kExpand, {column, target});
    d.inputs[i] = b.Emit(d, which + "_channels", Op::kReshape, {wide, flat});
  }
  return {};
}
// Opset 20 renamed GridSample's modes and moved DFT's axis into an input.
Status GridSampleModes(Draft& d, GraphBuilder&) {
  const std::string mode = d.attrs.Str("mode", "bilinear");
  d.attrs.Set("mode", mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode);
  return {};
}
Status DftAxis(Draft& d, GraphBuilder& b) {
  d.inputs.resize(3);
  d.inputs[2] = b.Constant(d, "axis", Tensor::ScalarS64(d.attrs.Int("axis", 1)));
  Take(d, "axis");
  return {};
}
Status RoiAlignMode(Draft& d, GraphBuilder&) {
  d.attrs.Set("coordinate_transformation_mode", std::string("output_half_pixel"));
  return {};
}

// Optionals are refused as values, so what these ops get is a tensor, or no input at all.
constexpr int64_t kEveryOpset = INT64_MAX;
Status OptionalHas(Draft& d, GraphBuilder& b) {
  const uint8_t has[] = {static_cast<uint8_t>(d.input(0).valid())};
  d.op_type = "Identity";
  d.inputs = {b.Constant(d, "has", Tensor::Of<uint8_t>(DType::kBool, {}, has))};
  return {};
}
Status OptionalGet(Draft& d, GraphBuilder&) {
  if (!d.input(0).valid()) return Fail("it asks for the element of nothing");
  d.op_type = "Identity";
  return {};
}

struct Entry {
  std::string_view op;
  int64_t since;  // the rule applies below this opset
  UpgradeRule rule;
};
// In the order of opsets within one op: each rule leaves the form that the next one begins with.
constexpr Entry kRules[] = {
    {"BatchNormalization", 14, BatchNorm},
    {"Clip", 11, ClipInputs},
    {"DFT", 20, DftAxis},
    {"Dropout", 12, DropoutInputs},
    {"GridSample", 20, GridSampleModes},
    {"GroupNormalization", 21, GroupNormPerChannel},
    {"Hardmax", 13, HardmaxAxes},
    {"LogSoftmax", 13, SoftmaxAxes},
    {"OptionalGetElement", kEveryOpset, OptionalGet},
    {"OptionalHasElement", kEveryOpset, OptionalHas},
    {"Pad", 11, PadInputs},
    {"ReduceL1", 18, ReduceAxes},
    {"ReduceL2", 18, ReduceAxes},
    {"ReduceLogSum", 18, ReduceAxes},
    {"ReduceLogSumExp", 18, ReduceAxes},
    {"ReduceMax", 18, ReduceAxes},
    {"ReduceMean", 18, ReduceAxes},
    {"ReduceMin", 18, ReduceAxes},
    {"ReduceProd", 18, ReduceAxes},
    {"ReduceSum", 13, ReduceAxes},
    {"ReduceSumSquare", 18, ReduceAxes},
    {"Resize", 11, ResizeFrom10},
    {"Resize", 13, ResizeFrom11},
    {"RoiAlign", 16, RoiAlignMode},
    {"Scan", 9, ScanFrom8},
    {"Scatter", 11, ScatterToElements},
    {"Slice", 10, SliceInputs},
    {"Softmax", 13, SoftmaxAxes},
    {"Split", 13, SplitSizes},
    {"Split", 18, SplitCount},
    {"Squeeze", 13, Axes},
    {"TopK", 10, TopKInput},
    {"Unsqueeze", 13, Axes},
    {"Upsample", 10, UpsampleToResize},
};

}  // namespace

Status Upgrade(Draft& d, GraphBuilder& b) {
  if (d.op_type == "SimplifiedLayerNormalization") return SimplifiedLayerNorm(d, b);
  const std::string op = d.op_type;
  for (const Entry& e : kRules) {
    if (e.op == op && d.version < e.since) OCTAVO_TRY_STATUS(e.rule(d, b));
  }
  return {};
}

}  // namespace octavo::ir::onnx
