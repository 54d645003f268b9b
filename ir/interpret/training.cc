// One step of an optimizer: Momentum, Adam, Adagrad of ai.onnx.preview.training. Operands: rate, count of updates, then all tensors, all
// gradients, and all states, of which Adam has two.
#include <cmath>

#include "octavo/ir/interpret/doubles.h"

namespace octavo::ir::interpret {

namespace {

constexpr size_t kFirst = 2;

// What a step sees of one element, and changes.
struct Element {
  double x, g, state[2];
};

Result<double> Scalar(const Tensor& t) {
  if (t.size() != 1 || t.dtype() == DType::kString) return Fail("rate and count must be single numbers");
  return t.GetDouble(0);
}

// step(element) for every element of every tensor; outputs are the tensors, then the states.
template <typename Step>
Status Update(Call& call, size_t states, Step step) {
  const size_t groups = 2 + states, count = (call.in.size() - kFirst) / groups;
  if (call.in.size() != kFirst + groups * count || call.out.size() != (1 + states) * count)
    return Fail("{} inputs and {} outputs do not make tensors with gradients and states", call.in.size(),
                call.out.size());
  for (size_t i = 0; i < count; ++i) {
    Tensor in[4], out[3];
    const DType type = call.T(kFirst + i).dtype();
    for (size_t k = 0; k < groups; ++k) {
      const Tensor& t = call.T(kFirst + k * count + i);
      if (t.shape() != call.T(kFirst + i).shape())
        return Fail("a tensor, its gradient and its states must have equal shapes");
      OCTAVO_TRY(in[k], Doubles(t));
    }
    for (size_t k = 0; k <= states; ++k) out[k] = Tensor::Empty(DType::kF64, in[0].shape());
    for (int64_t j = 0; j < in[0].size(); ++j) {
      Element e{In(in[0])[j], In(in[1])[j], {In(in[2])[j], states > 1 ? In(in[3])[j] : 0}};
      step(e);
      Out(out[0])[j] = e.x;
      for (size_t k = 0; k < states; ++k) Out(out[k + 1])[j] = e.state[k];
    }
    for (size_t k = 0; k <= states; ++k) OCTAVO_TRY_STATUS(ReturnAs(call, out[k], type, k * count + i));
  }
  return {};
}

Status Momentum(Call& call) {
  OCTAVO_TRY(const double rate, Scalar(call.T(0)));
  OCTAVO_TRY(const double updates, Scalar(call.T(1)));
  const std::string mode = call.node.attrs.Str("mode", "");
  if (mode != "standard" && mode != "nesterov") return Fail("mode must be standard or nesterov");
  const double norm = call.Float("norm_coefficient", 0.0f), alpha = call.Float("alpha", 0.0f);
  const double beta = updates > 0 ? call.Float("beta", 1.0f) : 1.0;
  return Update(call, 1, [&](Element& e) {
    const double g = norm * e.x + e.g;
    e.state[0] = alpha * e.state[0] + beta * g;
    e.x -= rate * (mode == "standard" ? e.state[0] : g + alpha * e.state[0]);
  });
}

Status Adagrad(Call& call) {
  OCTAVO_TRY(const double rate, Scalar(call.T(0)));
  OCTAVO_TRY(const double updates, Scalar(call.T(1)));
  const double norm = call.Float("norm_coefficient", 0.0f), epsilon = call.Float("epsilon", 1e-6f);
  const double r = rate / (1 + updates * static_cast<double>(call.Float("decay_factor", 0.0f)));
  return Update(call, 1, [&](Element& e) {
    const double g = norm * e.x + e.g;
    e.state[0] += g * g;
    e.x -= r * g / (std::sqrt(e.state[0]) + epsilon);
  });
}

Status Adam(Call& call) {
  OCTAVO_TRY(const double rate, Scalar(call.T(0)));
  OCTAVO_TRY(const double updates, Scalar(call.T(1)));
  const double norm = call.Float("norm_coefficient", 0.0f), post = call.Float("norm_coefficient_post", 0.0f);
  const double epsilon = call.Float("epsilon", 1e-6f), alpha = call.Float("alpha", 0.9f),
               beta = call.Float("beta", 0.999f);
  const double r = updates > 0 ? rate * std::sqrt(1 - std::pow(beta, updates)) / (1 - std::pow(alpha, updates)) : rate;
  return Update(call, 2, [&](Element& e) {
    const double g = norm * e.x + e.g;
    e.state[0] = alpha * e.state[0] + (1 - alpha) * g;
    e.state[1] = beta * e.state[1] + (1 - beta) * g * g;
    e.x = (1 - post) * (e.x - r * e.state[0] / (std::sqrt(e.state[1]) + epsilon));
  });
}

}  // namespace

void RegisterTraining(Table& t) {
  t.Set(Op::kMomentum, Momentum);
  t.Set(Op::kAdagrad, Adagrad);
  t.Set(Op::kAdam, Adam);
}

}  // namespace octavo::ir::interpret
