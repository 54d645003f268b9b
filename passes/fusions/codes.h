// What rules ask of quantization to codes of 8 bits.
#ifndef OCTAVO_PASSES_FUSIONS_CODES_H_
#define OCTAVO_PASSES_FUSIONS_CODES_H_

#include <format>

#include "octavo/passes/fusions/fusions.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::fusions {

// Whether a QuantizedLinear has one of the operands from this slot on that follow the product; the steps of its weight (slots 10, 11) do not.
inline bool HasEpilogue(const Node& linear, size_t from) {
  while (from < 10 && !linear.input(from)) ++from;
  return from < 10;
}

// QuantizeLinear to fp8 saturates, as the kernels do; integers always do.
inline pattern::Verdict CheckSaturates(const pattern::Match& m, pattern::Var quantize) {
  if (m.at(quantize).attrs.Int("saturate", 1) != 0) return pattern::Ok();
  return pattern::Illegal("QuantizeLinear has saturate = 0, and the kernels saturate");
}

// A Quantize- or DequantizeLinear with one scale and one zero point, both constant.
inline bool HasScalarParams(const Graph& g, const Node& n) {
  for (size_t slot : {1u, 2u}) {
    const ir::Tensor* t = g.ConstantOf(n.input(slot));
    if (t == nullptr || t->size() != 1) return false;
  }
  return true;
}
inline pattern::Verdict CheckScalarParams(const pattern::Match& m, pattern::Var node, const char* what) {
  if (HasScalarParams(m.graph(), m.at(node))) return pattern::Ok();
  return pattern::Illegal(std::format("{} is not quantized per tensor with a constant scale and zero point", what));
}

// What `dq`, of one scale, makes of other codes.
inline ValueId Dequantized(Rewriter& b, const Node& dq, ValueId codes) {
  std::vector<ValueId> in = dq.inputs;
  in[0] = codes;
  ir::Attrs attrs = dq.attrs;
  attrs.Erase("axis");
  return b.Create(ir::Op::kDequantizeLinear, std::move(in), std::move(attrs));
}

// Two nodes with the same scale (slot 1) or zero point (slot 2), as a value or as a number.
inline bool SameParam(const Graph& g, const Node& a, const Node& b, size_t slot) {
  const ir::Tensor *s = g.ConstantOf(a.input(slot)), *t = g.ConstantOf(b.input(slot));
  return a.input(slot) == b.input(slot) || (s != nullptr && t != nullptr && s->SameBits(*t));
}
inline bool SameParams(const Graph& g, const Node& a, const Node& b) {
  return SameParam(g, a, b, 1) && SameParam(g, a, b, 2);
}
inline bool SameZero(const pattern::Match& m, pattern::Var a, pattern::Var b) {
  return SameParam(m.graph(), m.at(a), m.at(b), 2);
}
inline bool SameParams(const pattern::Match& m, pattern::Var a, pattern::Var b) {
  return SameParams(m.graph(), m.at(a), m.at(b));
}

// The output of a product: codes of integers or of fp8, whatever the operands are.
inline pattern::Verdict CheckOutputCodes(const pattern::Match& m, pattern::Var quantize) {
  if (!quant::IsCode8(m.graph().value(m[quantize]).type.dtype)) {
    return pattern::Illegal("the output is not quantized to 8 bits");
  }
  return CheckSaturates(m, quantize);
}

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_CODES_H_
