#include "octavo/passes/fusions/linear_operands.h"

#include <algorithm>
#include <format>

#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;

namespace {

Verdict CheckWeights(const Match& m, const LinearParts& p) {
  const Graph& g = m.graph();
  const Node& dq = m.at(p.wd);
  const ir::Tensor& t = *g.ConstantOf(m[p.w]);
  if (t.rank() != 2) return Shape(std::format("the weight has rank {}, not 2", t.rank()));
  const ir::Tensor* scale = g.ConstantOf(dq.input(1));
  if (scale == nullptr) return Illegal("the weight's scale is not a constant");
  const int64_t n = t.shape()[1];
  const int64_t axis = dq.attrs.Int("axis", 1);
  if (scale->size() != 1 && (scale->size() != n || (axis != 1 && axis != -1))) {
    return Illegal(std::format("the weight's scale is neither per tensor nor per output column ({} values, axis {})",
                               scale->size(), axis));
  }
  if (dq.attrs.Int("block_size", 0) != 0) return Illegal("the weight is quantized in blocks");
  if (dq.input(2)) {
    const ir::Tensor* zero = g.ConstantOf(dq.input(2));
    if (zero == nullptr) return Illegal("the weight's zero point is not a constant");
    const std::vector<float> z = zero->ToFloats();
    if (std::any_of(z.begin(), z.end(), [](float v) { return v != 0; })) {
      return Illegal("the weight has a zero point other than 0: quantize weights symmetrically");
    }
  }
  if (m.Has(p.bias)) {
    const ir::Tensor* b = g.ConstantOf(m[p.bias]);
    if (b == nullptr || b->dtype() != DType::kF32 || b->size() != n || b->rank() != 1) {
      return Illegal(std::format("what is added is not a constant bias of {} values", n));
    }
  }
  return Ok();
}

// As CheckScalarParams, but the parameters may be computed at run time (DynamicQuantizeLinear): scalars by their type.
Verdict CheckActivation(const Match& m, Var xd) {
  const auto is_scalar = [&m](ValueId v) {
    return v.valid() && m.graph().value(v).type.shape && m.graph().value(v).type.shape->empty();
  };
  if (is_scalar(m.at(xd).input(1)) && is_scalar(m.at(xd).input(2))) return Ok();
  return CheckScalarParams(m, xd, "the activation");
}

// Operands: both integers or both fp8; what stands between is f32.
Verdict CheckTypes(const Match& m, const LinearParts& p) {
  if (m.dtype(p.product) != DType::kF32)
    return NoKernel(std::format("the product is {}, for which there is no kernel: its scales must be f32",
                                quant::Name(m.dtype(p.product))));
  if (quant::IsFp8(m.dtype(p.x)) != quant::IsFp8(m.dtype(p.w)))
    return Illegal("one operand is fp8, the other an integer");
  return !p.quantized.valid() ? Ok() : CheckOutputCodes(m, p.quantized);
}

Verdict CheckPostScale(const Match& m, const LinearParts& p) {
  if (!m.Has(p.post_scale)) return Ok();
  const ir::Tensor& s = *m.graph().ConstantOf(m[p.post_scale]);
  if (s.rank() == 1 && s.size() == m.graph().ConstantOf(m[p.w])->shape()[1]) return Ok();
  return Illegal("what multiplies the output is not a vector of its columns");
}

}  // namespace

Verdict CheckLinear(const Match& m, const LinearParts& p) {
  if (Verdict v = CheckWeights(m, p); !v.ok()) return v;
  if (Verdict v = CheckActivation(m, p.xd); !v.ok()) return v;
  if (Verdict v = CheckTypes(m, p); !v.ok()) return v;
  if (!p.quantized.valid()) return Ok();
  if (Verdict v = CheckScalarParams(m, p.quantized, "the output"); !v.ok()) return v;
  return CheckPostScale(m, p);
}

}  // namespace octavo::passes::fusions
