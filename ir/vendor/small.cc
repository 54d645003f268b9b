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

// Import rewrites it unless one of the outputs that only training reads is wanted.
Status SkipRmsNorm(Site& s) {
  return s.Refuse("its outputs mean or inv_std_var are used, which only training needs; export for inference");
}

}  // namespace octavo::ir::vendor
