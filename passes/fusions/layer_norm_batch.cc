// Before: r = Reshape(x [.., K]) to [1, N, K, 1];  m = ReduceMean(r, [0, 2, 3]);  var = ReduceSumSquare(r - m, [0, 2, 3]) / K
//         y = Reshape(BatchNormalization(r, 1, 0, m, var)) * gamma + beta
// After:  LayerNormalization(x, gamma, beta), axis -1
// Keras 2 and tf.keras compute a norm as that of a batch, each row a channel. The float result differs by rounding: a few ulp of the terms.
// Refuses: rows that are no channels, another count than K, gamma or beta that is no vector of the last dimension.
#include "octavo/passes/fusions/norm_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

bool Is(const ir::Dim& d, int64_t n) { return d.is_number() && d.number() == n; }

// Why r is not [1, N, K, 1] of rows of K, which is the count.
std::string WhyNoChannels(const ir::SymShape* rows, const ir::SymShape* r, float count) {
  if (rows == nullptr || r == nullptr || rows->empty() || !rows->back().is_number()) return "its shapes are not known";
  const int64_t k = rows->back().number();
  const bool channels = r->size() == 4 && Is((*r)[0], 1) && Is((*r)[2], k) && Is((*r)[3], 1);
  if (!channels) return "its channels are not the rows of x";
  return count == static_cast<float>(k) ? "" : "its variance is no mean of a row";
}

std::string AxesOfChannel(const Graph& g, const Node& n) {
  const ir::Tensor* axes = g.ConstantOf(n.input(1));
  const bool three = axes != nullptr && axes->size() == 3;
  return three && axes->GetInt(0) == 0 && axes->GetInt(1) == 2 && axes->GetInt(2) == 3 ? ""
                                                                                       : "its axes are not 0, 2 and 3";
}

std::string NotInTraining(const Graph&, const Node& n) {
  return n.attrs.Int("training_mode", 0) == 0 ? "" : "it is in training";
}

}  // namespace

Rule LayerNormBatch() {
  RuleBuilder r("layer_norm_batch", "batch_norm of each row * gamma + beta -> LayerNormalization");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var rows = r.Op("rows", Op::kReshape, {x, Anything()});
  const Var mean = r.Op("mean", Op::kReduceMean, {rows, Anything()}, AxesOfChannel);
  const Var d = r.Op("centered", Op::kSub, {rows, mean});
  const Var squares =
      r.Named(r.Op("squares", Op::kReduceSumSquare, {d, Anything()}, AxesOfChannel), {{"keepdims", int64_t{0}}});
  const Var count = r.Scalar("count"), variance = r.Op("variance", Op::kDiv, {squares, count});
  const Var one = r.Op("ones", Op::kExpand, {r.Scalar("one", 1.0), Anything()});
  const Var zero = r.Op("zeros", Op::kExpand, {r.Scalar("zero", 0.0), Anything()});
  const Var flat = r.Op("flat", Op::kSqueeze, {mean, Anything()});
  const Var norm = r.Open(r.Op("norm", Op::kBatchNormalization, {rows, one, zero, flat, variance}, NotInTraining));
  const Var gamma = r.Input("gamma"), beta = r.Input("beta");
  const Var scaled = r.AnyOrder("scaled", Op::kMul, r.Op("back", Op::kReshape, {norm, Anything()}), gamma);
  const Var root = r.AnyOrder("shifted", Op::kAdd, scaled, beta);
  r.Root(root);
  r.Guard([=](const Match& m) {
    if (const std::string why = WhyNoChannels(m.shape(x), m.shape(rows), m.scalar(count)); !why.empty())
      return Illegal(why);
    const ir::SymShape* out = m.shape(root);
    if (out == nullptr || !ProvablyEqual(*out, *m.shape(x))) return Illegal("its result has another shape than x");
    return CheckVectors(m.graph(), m[x], {m[gamma], m[beta]}, true);
  });
  r.Build([=](Rewriter& b, const Match& m) {
    return b.Create(Op::kLayerNormalization, {m[x], FlatVector(b, m[gamma]), FlatVector(b, m[beta])},
                    {{"axis", int64_t{-1}}, {"epsilon", m.at(norm).attrs.Float("epsilon", 1e-5f)}});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
