#include "octavo/passes/fusions/norm_parts.h"

#include <algorithm>
#include <format>

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

// Axes are input 1 (ops.def).
std::string MeanOfLast(const Graph& g, const Node& n) {
  const auto& shape = g.value(n.inputs[0]).type.shape;
  const ir::Tensor* axes = g.ConstantOf(n.input(1));
  if (axes == nullptr || axes->size() != 1) return "its axes are not one constant";
  const int64_t axis = axes->GetInt(0);
  const bool last = axis == -1 || (shape && axis == static_cast<int64_t>(shape->size()) - 1);
  if (!last) return "its axis " + std::to_string(axis) + " is not the last one";
  return n.attrs.Int("keepdims", 1) == 1 ? "" : "it drops the dimension";
}

// What v has beside its last dim: nothing, or in a constant dims of 1, which x has room for.
static bool IsRow(const Graph& g, ValueId v, size_t most) {
  const auto& shape = g.value(v).type.shape;
  if (!shape || shape->empty() || shape->size() > most) return false;
  const auto is_one = [](const ir::Dim& d) { return d.is_number() && d.number() == 1; };
  return shape->size() == 1 || (g.ConstantOf(v) != nullptr && std::all_of(shape->begin(), shape->end() - 1, is_one));
}

Verdict CheckVectors(const Graph& g, ValueId x, std::initializer_list<ValueId> vectors, bool strict) {
  const auto& rows = g.value(x).type.shape;
  for (const ValueId v : vectors) {
    if (!v.valid()) continue;
    const auto& shape = g.value(v).type.shape;
    const bool vector =
        rows && IsRow(g, v, strict ? rows->size() : 1) && g.value(v).type.dtype == g.value(x).type.dtype;
    const bool fits = vector && ProvablyEqual(rows->back(), shape->back());
    const bool is_op = vector && !strict && shape->back().is_number() && shape->back().number() != 1;
    if (fits || is_op) continue;
    return Illegal(std::format("gamma or beta is no vector of the last dimension: '{}' is {}, x is {}", g.value(v).name,
                               ToString(g.value(v).type), ToString(g.value(x).type)));
  }
  return Ok();
}

ValueId FlatVector(Rewriter& b, ValueId v) {
  const ir::Tensor* t = v.valid() ? b.graph().ConstantOf(v) : nullptr;
  return t == nullptr || t->rank() == 1 ? v : b.Constant(t->Reshaped({t->size()}), b.graph().value(v).name);
}

Verdict CheckCounted(const Graph& g, ValueId x) {
  const auto& rows = g.value(x).type.shape;
  if (rows && !rows->empty() && rows->back().is_number()) return Ok();
  return Illegal(
      std::format("a norm without gamma needs to know how long a row is: x is {}", ToString(g.value(x).type)));
}

ValueId Ones(Rewriter& b, ValueId x) {
  const ir::Type& type = b.graph().value(x).type;
  const int64_t count = type.shape->back().number();
  if (type.dtype == ir::DType::kF32)
    return b.Constant(ir::Tensor::F32({count}, std::vector<float>(static_cast<size_t>(count), 1.0f)), "ones");
  const std::vector<uint16_t> bits(static_cast<size_t>(count), type.dtype == ir::DType::kF16 ? 0x3C00 : 0x3F80);
  return b.Constant(ir::Tensor::Of<uint16_t>(type.dtype, {count}, bits), "ones");
}

Var MeanOfSquare(RuleBuilder& r, Var x) {
  const Var square =
      r.OneOf("square", {r.Op("pow", Op::kPow, {x, r.Scalar("two", 2.0)}), r.Op("xx", Op::kMul, {x, x})});
  return r.Op("mean_square", Op::kReduceMean, {square, Anything()}, MeanOfLast);
}

StableRoot RootOf(RuleBuilder& r, Var x) {
  const Var epsilon = r.Scalar("epsilon"), stable = r.AnyOrder("stable", Op::kAdd, x, epsilon);
  const Var root = r.OneOf(
      "deviation", {r.Op("sqrt", Op::kSqrt, {stable}), r.Op("half_power", Op::kPow, {stable, r.Scalar("half", 0.5)})});
  const Var inverse = r.OneOf(
      "inverse", {r.Op("reciprocal", Op::kReciprocal, {root}), r.Op("one_over", Op::kDiv, {r.Scalar("one", 1.0), root}),
                  r.Op("minus_half_power", Op::kPow, {stable, r.Scalar("minus_half", -0.5)})});
  return {epsilon, root, inverse};
}

Var Normalized(RuleBuilder& r, Var x, const StableRoot& by, Var gamma) {
  const Var normal =
      r.OneOf("normalized", {r.AnyOrder("times", Op::kMul, x, by.inverse), r.Op("over", Op::kDiv, {x, by.root})});
  if (!gamma.valid()) return normal;
  const Var early = r.AnyOrder("x_gamma", Op::kMul, x, gamma);
  const Var factor = r.OneOf("factor", {r.AnyOrder("inverse_gamma", Op::kMul, by.inverse, gamma),
                                        r.Op("gamma_over", Op::kDiv, {gamma, by.root})});
  return r.OneOf(
      "scaled",
      {r.AnyOrder("normal_gamma", Op::kMul, normal, gamma), r.AnyOrder("early_times", Op::kMul, early, by.inverse),
       r.Op("early_over", Op::kDiv, {early, by.root}), r.AnyOrder("x_factor", Op::kMul, x, factor)});
}

}  // namespace octavo::passes::fusions
