// com.microsoft EmbedLayerNormalization: words + positions + segments, normalized; QEmbedLayerNormalization has 8-bit
// tables. The mask index is the number of ones of each row of the mask (ONNX Runtime's CPU kernel counts them; without
// a mask: 0).
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

// The operand at slot `i`, or, quantized, rows gathered before they are dequantized.
ValueId Row(Site& s, size_t table, ValueId ids, size_t parameters) {
  const ValueId rows = s.Make(Op::kGather, {s.In(table), ids}, {{"axis", int64_t{0}}});
  return parameters == 0 ? rows : s.Dequantize(rows, s.In(parameters), s.In(parameters + 5));
}

ValueId MaskIndex(Site& s, bool has_mask) {
  if (!has_mask) {
    return s.Make(Op::kConstantOfShape, {s.Dim(s.In(0), 0)}, {{"value", Tensor::Zeros(DType::kS32, {1})}});
  }
  const ValueId one = s.Make(Op::kCastLike, {s.Int(1), s.In(7)});
  const ValueId ones =
      s.Make(Op::kCast, {s.Make(Op::kEqual, {s.In(7), one})}, {{"to", static_cast<int64_t>(DType::kS32)}});
  return s.Make(Op::kReduceSum, {ones, s.Ints({1})}, {{"keepdims", int64_t{0}}});
}

}  // namespace

Status EmbedLayerNorm(Site& s) {
  const bool quantized = s.op() == "QEmbedLayerNormalization";
  if (s.Has(1) != s.Has(4) || (quantized && s.Has(4) != s.Has(10)))
    return s.Refuse("it has only one of segment_ids and segment_embedding");
  if (s.attrs().Int("mask_index_type", 1) > 1) {
    return s.Refuse("mask_index_type is {}; octavo knows 1, the number of words", s.attrs().Int("mask_index_type", 1));
  }
  const auto parameters = [&](size_t slot) { return quantized ? slot : size_t{0}; };
  const bool has_positions = !quantized && s.Has(8);
  ValueId positions = has_positions ? s.In(8) : ValueId{};
  if (!positions.valid()) positions = s.Count(s.DimScalar(s.In(0), 1));
  ValueId sum = s.Make(Op::kAdd, {Row(s, 2, s.In(0), parameters(8)), Row(s, 3, positions, parameters(9))});
  if (s.Has(1)) sum = s.Make(Op::kAdd, {sum, Row(s, 4, s.In(1), parameters(10))});
  ValueId gamma = s.In(5), beta = s.In(6);
  if (quantized) {
    gamma = s.Dequantize(gamma, s.In(11), s.In(16));
    beta = s.Dequantize(beta, s.In(12), s.In(17));
  }
  s.Return(0, s.Make(Op::kLayerNormalization, {sum, gamma, beta},
                     {{"axis", int64_t{-1}}, {"epsilon", s.attrs().Float("epsilon", 1e-12f)}}));
  if (s.Wants(1)) s.Return(1, MaskIndex(s, s.Has(7)));
  if (s.Wants(2)) s.Return(2, sum);
  return {};
}

}  // namespace octavo::ir::vendor
