// com.microsoft MatMulIntegerToFloat and DynamicQuantizeMatMul: the exact integer product, scaled, plus bias. In the
// form of ops.def that is a MatMul of two DequantizeLinears, which octavo computes in integers.
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

// B [K, N] with one scale, or one per column.
Result<ValueId> Weight(Site& s, size_t scale, size_t zero) {
  if (s.Rank(s.In(1)) != 2 && s.Rank(s.In(scale)) != 0 && s.SizeOf(s.In(scale), 0) != 1) {
    return s.Refuse("its B has a scale per column and is no matrix; octavo takes that for rank 2");
  }
  return s.Dequantize(s.In(1), s.In(scale), s.In(zero));
}

}  // namespace

Status MatMulIntegerToFloat(Site& s) {
  const bool one = s.Rank(s.In(2)) == 0 || s.SizeOf(s.In(2), 0) == 1;
  if (!one) return s.Refuse("a_scale is not one number; octavo takes one scale for the whole of A");
  const ValueId a = s.Dequantize(s.In(0), s.In(2), s.In(4));
  OCTAVO_TRY(const ValueId b, Weight(s, 3, 5));
  const ValueId y = s.Make(Op::kMatMul, {a, b});
  s.Return(0, s.Has(6) ? s.Make(Op::kAdd, {y, s.In(6)}) : y);
  return {};
}

Status DynamicQuantizeMatMul(Site& s) {
  const auto parts = s.MakeN(Op::kDynamicQuantizeLinear, {s.In(0)}, 3);
  const ValueId a = s.Dequantize(parts[0], parts[1], parts[2]);
  OCTAVO_TRY(const ValueId b, Weight(s, 2, 3));
  const ValueId y = s.Make(Op::kMatMul, {a, b});
  s.Return(0, s.Has(4) ? s.Make(Op::kAdd, {y, s.In(4)}) : y);
  return {};
}

}  // namespace octavo::ir::vendor
