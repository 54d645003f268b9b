// Resize and its forerunners.
#include <algorithm>

#include "octavo/ir/onnx/upgrade.h"

namespace octavo::ir::onnx {

namespace {

// x and scales with the coordinates of opset 10, where pixel i of the output reads i / scale.
Status Asymmetric(Draft& d, GraphBuilder& b, ValueId scales) {
  const std::string mode = d.attrs.Str("mode", "nearest");
  if (mode == "nearest") {
    // Opset 10 rounds down along a dim that it enlarges and up along one that it shrinks.
    const Tensor* t = b.graph().ConstantOf(scales);
    const std::vector<float> factors = t != nullptr ? t->ToFloats() : std::vector<float>();
    const bool enlarges = std::ranges::all_of(factors, [](float f) { return f >= 1.0f; });
    const bool shrinks = std::ranges::all_of(factors, [](float f) { return f <= 1.0f; });
    if (t == nullptr || (!enlarges && !shrinks)) {
      const ValueId one = b.Constant(d, "one", Tensor::ScalarF32(1.0f));
      Attrs down = d.attrs;
      down.Set("mode", mode);
      down.Set("nearest_mode", std::string("floor"));
      down.Set("coordinate_transformation_mode", std::string("asymmetric"));
      const ValueId larger = b.Emit(d, "larger", Op::kMax, {scales, one});
      d.inputs[0] = b.Emit(d, "enlarged", Op::kResize, {d.input(0), ValueId{}, larger}, std::move(down));
      scales = b.Emit(d, "smaller", Op::kMin, {scales, one});
      d.attrs.Set("nearest_mode", std::string("ceil"));
    } else {
      d.attrs.Set("nearest_mode", std::string(enlarges ? "floor" : "ceil"));
    }
  }
  d.attrs.Set("coordinate_transformation_mode", std::string("asymmetric"));
  d.op_type = "Resize";
  d.inputs = {d.input(0), ValueId{}, scales};
  return {};
}

}  // namespace

Status ResizeFrom10(Draft& d, GraphBuilder& b) {
  if (d.inputs.size() != 2) return Fail("it has {} inputs, not 2", d.inputs.size());
  return Asymmetric(d, b, d.input(1));
}

Status ResizeFrom11(Draft& d, GraphBuilder& b) {
  if (d.attrs.Str("coordinate_transformation_mode", "") == "tf_half_pixel_for_nn") {
    return Fail("its coordinates tf_half_pixel_for_nn are gone since opset 13; export it with opset 13 or later");
  }
  // Empty tensors stood for absent inputs.
  for (size_t i : {size_t{1}, size_t{2}}) {
    if (!d.input(i).valid()) continue;
    const Tensor* t = b.graph().ConstantOf(d.inputs[i]);
    if (t != nullptr && t->size() == 0) d.inputs[i] = {};
  }
  return {};
}

Status UpsampleToResize(Draft& d, GraphBuilder& b) {
  ValueId scales = d.input(1);
  if (!scales.valid()) {
    const Attr* a = d.attrs.Find("scales");
    const auto* floats = a != nullptr ? std::get_if<std::vector<float>>(a) : nullptr;
    if (floats == nullptr) return Fail("it has no scales");
    scales = b.Constant(d, "scales", Tensor::F32({static_cast<int64_t>(floats->size())}, *floats));
    d.attrs.Erase("scales");
  }
  return Asymmetric(d, b, scales);
}

}  // namespace octavo::ir::onnx
