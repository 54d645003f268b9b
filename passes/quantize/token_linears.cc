#include "octavo/passes/quantize/token_linears.h"

#include <vector>

#include "octavo/kernels/catalog.h"

namespace octavo::passes::quantize {

using ir::DType;

std::string WhyNoTokens(const ir::Shape& w) {
  return kernels::ChooseLinear({.y = {DType::kF32}, .k = w[0], .n = {w[1]}}, kernels::Arch::kScalar).refusal;
}

TokenLinears::Operands TokenLinears::Put(const std::string& name, const Weight& weight) {
  Operands made{b_.Constant(weight.codes, name + "_quantized"), b_.Constant(weight.scale, name + "_scale"), {}, {}};
  if (weight.step != nullptr) made.step = b_.Constant(*weight.step, name + "_step");
  if (weight.zero != nullptr) made.zero = b_.Constant(*weight.zero, name + "_zero_point");
  return made;
}

void TokenLinears::Put(NodeId linear, const Operands& weight) {
  const ValueId x = g_.node(linear).input(0);
  auto [at, first] = tokens_.try_emplace(x);
  if (first) {
    const Node& q = g_.node(b_.CreateN(Op::kQuantizeTokens, {x}, 3));
    at->second = {q.output(0), q.output(1), q.output(2)};
  }
  const auto& [codes, scale, zero] = at->second;
  std::vector<ValueId> in{codes, scale, zero, weight.codes, weight.scale};
  if (weight.step) {
    in.resize(12);
    in[10] = weight.step, in[11] = weight.zero;
  }
  const ValueId y = b_.Create(Op::kQuantizedLinear, std::move(in), {{"activation", "none"}, {"per_token", int64_t{1}}});
  b_.Replace(g_.node(linear).output(), y);
  b_.EraseDead(linear);
}

}  // namespace octavo::passes::quantize
