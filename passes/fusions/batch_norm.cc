// Before: BatchNormalization(x, scale, B, mean, var)     all but x constants, in inference
// After:  x * a + (B - mean * a)     a = scale / sqrt(var + epsilon), one for each channel
// A number for each channel goes into the convolution before it (conv_affine.cc), or is the end of a chain. The float result differs by rounding: a
// few ulp of the larger of x * a and mean * a.
// Refuses: x of unknown rank, a channel whose a is not finite.
#include <cmath>
#include <optional>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;
using ir::Tensor;

namespace {

struct Affine {
  Tensor factor, shift;
};

std::optional<Affine> AffineOf(const Match& m, Var norm) {
  const ir::SymShape* x = m.shape(norm);
  const Tensor* t[4];
  for (size_t i = 0; i < 4; ++i) {
    t[i] = m.graph().ConstantOf(m.at(norm).input(i + 1));
    if (t[i] == nullptr || t[i]->dtype() != ir::DType::kF32 || t[i]->rank() != 1 || t[i]->size() != t[0]->size())
      return {};
  }
  if (x == nullptr || x->size() < 2) return {};
  ir::Shape shape(x->size() - 1, 1);
  shape[0] = t[0]->size();
  const double epsilon = m.at(norm).attrs.Float("epsilon", 1e-5f);
  Affine made{Tensor::Empty(ir::DType::kF32, shape), Tensor::Empty(ir::DType::kF32, shape)};
  for (int64_t c = 0; c < t[0]->size(); ++c) {
    const double a = t[0]->GetDouble(c) / std::sqrt(t[3]->GetDouble(c) + epsilon);
    const double b = t[1]->GetDouble(c) - t[2]->GetDouble(c) * a;
    if (!std::isfinite(static_cast<float>(a)) || !std::isfinite(static_cast<float>(b))) return {};
    made.factor.mutable_as<float>()[static_cast<size_t>(c)] = static_cast<float>(a);
    made.shift.mutable_as<float>()[static_cast<size_t>(c)] = static_cast<float>(b);
  }
  return made;
}

}  // namespace

Rule BatchNorm() {
  RuleBuilder r("batch_norm", "BatchNormalization of constants -> x * a + b");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var norm = r.Open(r.Op("norm", Op::kBatchNormalization, {x}));
  r.Root(norm);
  r.Guard([=](const Match& m) {
    if (m.at(norm).attrs.Int("training_mode", 0) != 0) return Illegal("it is in training");
    return AffineOf(m, norm) ? Ok() : Illegal("its statistics are no finite constants for each channel");
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Affine made = *AffineOf(m, norm);
    return b.Create(Op::kAdd, {b.Create(Op::kMul, {m[x], b.Constant(made.factor)}), b.Constant(made.shift)});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
