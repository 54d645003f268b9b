// com.microsoft ops of a few standard ones that import leaves where they need types or are used in an unusual way.
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

// x * sigmoid(alpha * x), for the element types that ir/onnx/vendor.cc leaves.
Status QuickGelu(Site& s) {
  const ValueId x = s.In(0);
  const ValueId alpha = s.Make(Op::kCastLike, {s.Float(s.attrs().Float("alpha", 1.702f)), x});
  s.Return(0, s.Make(Op::kMul, {x, s.Make(Op::kSigmoid, {s.Make(Op::kMul, {x, alpha})})}));
  return {};
}

// (x + bias) + skip
Status BiasAdd(Site& s) {
  s.Return(0, s.Make(Op::kAdd, {s.Make(Op::kAdd, {s.In(0), s.In(1)}), s.In(2)}));
  return {};
}

// axis: one integer
Status ExpandDims(Site& s) {
  s.Return(0, s.Make(Op::kUnsqueeze, {s.In(0), s.Reshape(s.Cast(s.In(1), DType::kS64), {-1})}));
  return {};
}

// Operands of one element, scalars or not; the step is 1 where it is absent.
Status Range(Site& s) {
  const ValueId first = s.Reshape(s.In(0), {});
  const ValueId step = s.Has(2) ? s.Reshape(s.In(2), {}) : s.Make(Op::kCastLike, {s.Int(1), first});
  s.Return(0, s.Make(Op::kRange, {first, s.Reshape(s.In(1), {}), step}));
  return {};
}

// ONNX's, by the names of opset 16.
Status GridSample(Site& s) {
  const std::string mode = s.attrs().Str("mode", "bilinear");
  Attrs attrs = s.attrs();
  attrs.Set("mode", mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode);
  s.Return(0, s.Make(Op::kGridSample, {s.In(0), s.In(1)}, std::move(attrs)));
  return {};
}

// Conv, a sum, and an activation.
Status FusedConv(Site& s) {
  Attrs attrs = s.attrs();
  const std::string activation = attrs.Str("activation", "");
  std::vector<float> params;
  if (const Attr* given = attrs.Find("activation_params"); given != nullptr) {
    if (const auto* list = std::get_if<std::vector<float>>(given)) params = *list;
  }
  attrs.Erase("activation");
  attrs.Erase("activation_params");
  ValueId y = s.Make(Op::kConv, {s.In(0), s.In(1), s.In(2)}, std::move(attrs));
  if (s.Has(3)) y = s.Make(Op::kAdd, {y, s.In(3)});
  const auto param = [&](size_t i, float fallback) { return i < params.size() ? params[i] : fallback; };
  if (activation == "Relu") {
    y = s.Make(Op::kRelu, {y});
  } else if (activation == "Sigmoid") {
    y = s.Make(Op::kSigmoid, {y});
  } else if (activation == "Tanh") {
    y = s.Make(Op::kTanh, {y});
  } else if (activation == "LeakyRelu") {
    y = s.Make(Op::kLeakyRelu, {y}, {{"alpha", param(0, 0.01f)}});
  } else if (activation == "HardSigmoid") {
    y = s.Make(Op::kHardSigmoid, {y}, {{"alpha", param(0, 0.2f)}, {"beta", param(1, 0.5f)}});
  } else if (activation == "Clip" && params.size() == 2) {
    y = s.Make(Op::kClip, {y, s.Float(params[0]), s.Float(params[1])});
  } else if (!activation.empty()) {
    return s.Refuse("its activation is not Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid or Clip");
  }
  s.Return(0, y);
  return {};
}

// Import rewrites it unless one of the outputs that only training reads is wanted.
Status SkipRmsNorm(Site& s) {
  return s.Refuse("its outputs mean or inv_std_var are used, which only training needs; export for inference");
}

}  // namespace octavo::ir::vendor
