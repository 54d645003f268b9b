// Before: Mul(Conv(x, W, b), s) or Add(Conv(x, W, b), s)     s f32, a number or one for each filter; W and b f32 constants
// After:  Conv(x, W * s, b * s) or Conv(x, W, b + s)
// What batch_norm.cc leaves behind convolutions, and what exporters wrote there. The float result differs by rounding: 1 ulp of each term of a sum.
#include <algorithm>
#include <cmath>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;
using ir::Tensor;

namespace {

// s for each filter; empty: it is something else.
std::vector<float> PerFilter(const Tensor& s, const ir::Shape& w) {
  const size_t rank = s.shape().size();
  if (s.dtype() != ir::DType::kF32 || rank > w.size()) return {};
  if (s.size() != 1 && (rank + 1 < w.size() || s.size() != w[0] || s.shape()[rank + 1 - w.size()] != w[0])) return {};
  return s.size() == 1 ? std::vector<float>(static_cast<size_t>(w[0]), s.ToFloats()[0]) : s.ToFloats();
}

// t, whose first dim are filters, times or plus s, rounded once; undefined where a value is not finite.
Tensor Folded(const Tensor& t, const std::vector<float>& s, Op op) {
  Tensor to = Tensor::Empty(ir::DType::kF32, t.shape());
  const int64_t a_filter = t.size() / static_cast<int64_t>(s.size());
  for (int64_t i = 0; i < t.size(); ++i) {
    const double from = t.GetDouble(i), by = s[static_cast<size_t>(i / a_filter)];
    const float value = to.mutable_as<float>()[static_cast<size_t>(i)] =
        static_cast<float>(op == Op::kMul ? from * by : from + by);
    if (!std::isfinite(value)) return {};
  }
  return to;
}

// The new weights, and the bias if there is one; empty: refused.
std::vector<Tensor> Fold(const Match& m, Var conv, Var s, Op op) {
  const Tensor *w = m.graph().ConstantOf(m.at(conv).input(1)), *b = m.graph().ConstantOf(m.at(conv).input(2));
  if (w == nullptr || w->dtype() != ir::DType::kF32 || w->rank() < 3 || w->size() == 0) return {};
  const ir::Shape filters = {w->shape()[0]};
  if (m.at(conv).input(2) && (b == nullptr || b->dtype() != ir::DType::kF32 || b->shape() != filters)) return {};
  const std::vector<float> each = PerFilter(*m.graph().ConstantOf(m[s]), w->shape());
  if (each.empty()) return {};
  std::vector<Tensor> made = {op == Op::kMul ? Folded(*w, each, op) : *w};
  if (b != nullptr || op == Op::kAdd)
    made.push_back(Folded(b != nullptr ? *b : Tensor::Zeros(ir::DType::kF32, filters), each, op));
  return std::ranges::all_of(made, &Tensor::defined) ? made : std::vector<Tensor>();
}

}  // namespace

Rule ConvAffine(Op op) {
  RuleBuilder r(op == Op::kMul ? "conv_scale" : "conv_shift", "Conv and a number for each filter -> Conv");
  const Var conv = r.Open(r.Op("conv", Op::kConv, {r.Input("x"), r.Constant("w")})), s = r.Constant("s");
  r.Root(r.AnyOrder("out", op, conv, s));
  r.Guard([=](const Match& m) {
    return Fold(m, conv, s, op).empty() ? Illegal("the constant is no finite number for each filter of a float Conv")
                                        : Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    std::vector<ValueId> in = {m.at(conv).input(0)};
    for (ir::Tensor& t : Fold(m, conv, s, op)) in.push_back(b.Constant(std::move(t)));
    return b.Create(Op::kConv, std::move(in), m.at(conv).attrs);
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
