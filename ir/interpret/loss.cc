// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
#include <cmath>

#include "octavo/ir/interpret/doubles.h"
#include "octavo/ir/names.h"

namespace octavo::ir::interpret {

namespace {

// log_probs [N, C, d...], labels [N, d...], weights [C] -> [N, d...], or one number.
Result<Tensor> Loss(const Call& call, const Tensor& log_probs) {
  const Shape& xs = log_probs.shape();
  Shape positions = {xs[0]};
  positions.insert(positions.end(), xs.begin() + 2, xs.end());
  const int64_t classes = xs[1], inner = Count(xs, 2, xs.size());
  if (call.T(1).shape() != positions)
    return Fail("the labels are {}, expected {}", Describe(call.T(1)), ToString(positions));
  OCTAVO_TRY(const auto labels, IntsOf(call.T(1), "the labels"));
  Tensor weights;
  if (call.Has(2)) {
    if (call.T(2).shape() != Shape{classes}) return Fail("the weights must have {} elements", classes);
    OCTAVO_TRY(weights, Doubles(call.T(2)));
  }
  const std::string reduction = call.node.attrs.Str("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    return Fail("reduction {} is not none, sum or mean", Quoted(reduction));
  const bool ignores = call.node.attrs.Has("ignore_index");
  const int64_t ignored = call.Int("ignore_index", 0);
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, positions));
  double sum = 0, total = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t c = labels[static_cast<size_t>(i)];
    if (ignores && c == ignored) continue;
    if (c < 0 || c >= classes) return Fail("label {} is none of {} classes", c, classes);
    const double w = weights.defined() ? In(weights)[c] : 1.0;
    Out(y)[i] = -In(log_probs)[(i / inner * classes + c) * inner + i % inner] * w;
    sum += Out(y)[i], total += w;
  }
  if (reduction == "none") return y;
  Tensor one = Tensor::Empty(DType::kF64, {});
  *Out(one) = reduction == "sum" ? sum : sum / total;
  return one;
}

Status CheckScores(const Tensor& t) {
  return t.rank() >= 2 ? Status{} : Status(Fail("the operand must have rank 2 or more: batch, classes, positions"));
}

Status NegativeLogLikelihood(Call& call) {
  OCTAVO_TRY_STATUS(CheckScores(call.T(0)));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(const Tensor y, Loss(call, x));
  return ReturnAs(call, y, call.T(0).dtype());
}

Status SoftmaxCrossEntropy(Call& call) {
  OCTAVO_TRY_STATUS(CheckScores(call.T(0)));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  const Shape& xs = x.shape();
  const int64_t classes = xs[1], inner = Count(xs, 2, xs.size());
  OCTAVO_TRY(Tensor logs, AllocZeros(DType::kF64, xs));
  for (int64_t i = 0; i < xs[0] * inner && classes > 0; ++i) {
    const int64_t first = i / inner * classes * inner + i % inner;
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; ++c) top = std::fmax(top, In(x)[first + c * inner]);
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(In(x)[first + c * inner] - top);
    for (int64_t c = 0; c < classes; ++c) Out(logs)[first + c * inner] = In(x)[first + c * inner] - top - std::log(sum);
  }
  OCTAVO_TRY(const Tensor y, Loss(call, logs));
  OCTAVO_TRY_STATUS(ReturnAs(call, y, call.T(0).dtype(), 0));
  return ReturnAs(call, logs, call.T(0).dtype(), 1);
}

}  // namespace

void RegisterLoss(Table& t) {
  t.Set(Op::kNegativeLogLikelihoodLoss, NegativeLogLikelihood);
  t.Set(Op::kSoftmaxCrossEntropyLoss, SoftmaxCrossEntropy);
}

}  // namespace octavo::ir::interpret
