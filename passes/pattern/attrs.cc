// Attributes as patterns compare them.
#include <array>

#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes::pattern {

namespace {

struct Default {
  ir::Op op;  // kOpaque: every op that has one of that name
  std::string_view name;
  ir::Attr value;
};

}  // namespace

const ir::Attr* DefaultOf(ir::Op op, std::string_view name) {
  using ir::Op;
  // Of the ONNX operator schemas; those of one op first.
  static const auto* const defaults = new std::vector<Default>{
      {Op::kSoftmax, "axis", int64_t{-1}},
      {Op::kLayerNormalization, "axis", int64_t{-1}},
      {Op::kRMSNormalization, "axis", int64_t{-1}},
      {Op::kQuantizeLinear, "axis", int64_t{1}},
      {Op::kDequantizeLinear, "axis", int64_t{1}},
      {Op::kFlatten, "axis", int64_t{1}},
      {Op::kGather, "axis", int64_t{0}},
      {Op::kSplit, "axis", int64_t{0}},
      {Op::kLeakyRelu, "alpha", 0.01f},
      {Op::kElu, "alpha", 1.0f},
      {Op::kHardSigmoid, "alpha", 0.2f},
      {Op::kHardSigmoid, "beta", 0.5f},
      {Op::kGemm, "alpha", 1.0f},
      {Op::kGemm, "beta", 1.0f},
      {Op::kOpaque, "keepdims", int64_t{1}},
      {Op::kOpaque, "saturate", int64_t{1}},
      {Op::kOpaque, "detect_negative", int64_t{1}},
      {Op::kOpaque, "detect_positive", int64_t{1}},
      {Op::kOpaque, "stash_type", int64_t{1}},
      {Op::kOpaque, "epsilon", 1e-5f},
      {Op::kOpaque, "approximate", std::string("none")},
      {Op::kOpaque, "allowzero", int64_t{0}},
      {Op::kOpaque, "noop_with_empty_axes", int64_t{0}},
      {Op::kOpaque, "block_size", int64_t{0}},
      {Op::kOpaque, "output_dtype", int64_t{0}},
      {Op::kOpaque, "precision", int64_t{0}},
      {Op::kOpaque, "transA", int64_t{0}},
      {Op::kOpaque, "transB", int64_t{0}},
      {Op::kOpaque, "select_last_index", int64_t{0}},
      {Op::kOpaque, "fmod", int64_t{0}},
      {Op::kOpaque, "start", int64_t{0}},
      {Op::kOpaque, "batch_dims", int64_t{0}},
  };
  for (const Default& d : *defaults) {
    if ((d.op == op || d.op == Op::kOpaque) && d.name == name) return &d.value;
  }
  return nullptr;
}

}  // namespace octavo::passes::pattern
