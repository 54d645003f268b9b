// com.microsoft RotaryEmbedding: ONNX's (opset 23) with the positions as second input, and one form more: a single
// offset.
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

Status RotaryEmbedding(Site& s) {
  const ValueId x = s.In(0), cos = s.In(2);
  const int64_t rank = s.Rank(x), of_positions = s.Rank(s.In(1));
  if (s.attrs().Int("is_packed_batching", 0) != 0) {
    return s.Refuse("is_packed_batching is set (rows of several sequences in one); export with a batch axis");
  }
  if (s.attrs().Float("scale", 1.0f) != 1.0f)
    return s.Refuse("scale is {}; only 1 is defined", s.attrs().Float("scale", 1.0f));
  if (rank != 3 && rank != 4) {
    return s.Refuse("its input must be [batch, rows, columns] or [batch, heads, rows, columns]");
  }
  if (of_positions != 1 && of_positions != 2) return s.Refuse("the rank of its position_ids is neither 1 nor 2");
  int64_t heads = s.attrs().Int("num_heads", 0);
  if (rank == 3 && heads == 0) {
    const int64_t columns = s.SizeOf(x, 2), half = s.SizeOf(cos, 1);
    if (columns <= 0 || half <= 0 || half > columns / 2 || columns % (2 * half) != 0) {
      return s.Refuse(
          "num_heads is 0 and cannot be told from the {} columns of its input and {} of cos_cache; give num_heads",
          columns, half);
    }
    heads = columns / (2 * half);
  }
  ValueId positions = s.In(1);
  const int64_t rows = rank == 3 ? 1 : 2;
  if (of_positions == 1) {
    const ValueId own = s.Make(Op::kAdd, {positions, s.Count(s.DimScalar(x, rows))});
    const ValueId both = s.Make(Op::kConcat, {s.Dim(x, 0), s.Dim(x, rows)}, {{"axis", int64_t{0}}});
    positions = s.Make(Op::kExpand, {own, both});
  }
  Attrs attrs = {{"interleaved", s.attrs().Int("interleaved", 0)},
                 {"rotary_embedding_dim", s.attrs().Int("rotary_embedding_dim", 0)}};
  if (rank == 3) attrs.Set("num_heads", heads);
  s.Return(0, s.Make(Op::kRotaryEmbedding, {x, cos, s.In(3), positions}, std::move(attrs)));
  return {};
}

}  // namespace octavo::ir::vendor
