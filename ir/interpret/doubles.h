// Ops that are computed in double, whatever the float type of their operands, and rounded once at the end.
#ifndef OCTAVO_IR_INTERPRET_DOUBLES_H_
#define OCTAVO_IR_INTERPRET_DOUBLES_H_

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

// A float operand as f64.
inline Result<Tensor> Doubles(const Tensor& t) {
  if (!quant::IsComputedFloat(t.dtype())) return BadType(t.dtype());
  return CastTo(t, DType::kF64);
}
// An f64 result in the element type `type`.
inline Status ReturnAs(Call& call, const Tensor& y, DType type, size_t i = 0) {
  if (!call.Wants(i)) return {};
  OCTAVO_TRY(Tensor rounded, CastTo(y, type));
  call.Return(std::move(rounded), i);
  return {};
}
inline const double* In(const Tensor& t) { return Ptr<double>(t); }
inline double* Out(Tensor& t) { return MutablePtr<double>(t); }

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_DOUBLES_H_
