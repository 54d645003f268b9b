// Before: y = Add(QuantizedLinear(x, w), bias)     bias f32 [N] constant
// After:  y = QuantizedLinear(x, w, bias)
// For products without Q/DQ around them, which quantized_linear.cc would take whole: those of the pass `dynamic`.
// Exact: the body of QuantizedLinear adds it where the Add stood (ir/functions.h).
// Refuses: a Linear with an epilogue, what is added but is no constant vector of the columns.
#include <format>

#include "octavo/passes/fusions/codes.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

constexpr size_t kWeight = 3, kBias = 5;  // operands of QuantizedLinear

Verdict Check(const Match& m, Var linear, Var bias) {
  const Graph& g = m.graph();
  const Node& n = m.at(linear);
  if (HasEpilogue(n, kBias) || n.attrs.Str("activation", "none") != "none")
    return NotWorth("the Linear has an epilogue already");
  const ir::Tensor *w = g.ConstantOf(n.input(kWeight)), *b = g.ConstantOf(m[bias]);
  if (w == nullptr || w->rank() != 2) return Illegal("the weight is not a constant matrix");
  if (b == nullptr || b->dtype() != DType::kF32 || b->rank() != 1 || b->size() != w->shape()[1])
    return Illegal(std::format("what is added is not a constant bias of {} values", w->shape()[1]));
  return Ok();
}

}  // namespace

Rule LinearBias() {
  RuleBuilder r("linear_bias", "QuantizedLinear + bias -> QuantizedLinear");
  const Var linear = r.Open(r.Op("linear", Op::kQuantizedLinear, {})), bias = r.Input("bias");
  r.Root(r.AnyOrder("biased", Op::kAdd, linear, bias));
  r.Guard([=](const Match& m) { return Check(m, linear, bias); });
  r.Build([=](Rewriter& b, const Match& m) {
    std::vector<ValueId> in = m.at(linear).inputs;
    in.resize(std::max(in.size(), kBias + 1));
    in[kBias] = m[bias];
    return b.Create(Op::kQuantizedLinear, std::move(in), m.at(linear).attrs);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
