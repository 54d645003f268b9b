// RNN, GRU and LSTM: one direction, one sequence, one step at a time.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/doubles.h"
#include "octavo/ir/names.h"

namespace octavo::ir::interpret {

namespace {

struct Activation {
  double (*f)(double x, double alpha, double beta);
  double alpha = 0, beta = 0;
  double operator()(double x) const { return f(x, alpha, beta); }
};

struct Form {
  std::string_view name;
  int parameters;  // how many of alpha and beta it has
  Activation defaults;
};
double Sigmoid(double x, double, double) { return 1 / (1 + std::exp(-x)); }
double Tanh(double x, double, double) { return std::tanh(x); }
constexpr Form kForms[] = {
    {"relu", 0, {[](double x, double, double) { return x > 0 ? x : 0; }}},
    {"tanh", 0, {Tanh}},
    {"sigmoid", 0, {Sigmoid}},
    {"softsign", 0, {[](double x, double, double) { return x / (1 + std::fabs(x)); }}},
    {"softplus", 0, {[](double x, double, double) {
       return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
     }}},
    {"affine", 2, {[](double x, double a, double b) { return a * x + b; }, 1.0, 0.0}},
    {"leakyrelu", 1, {[](double x, double a, double) { return x < 0 ? a * x : x; }, 0.01, 0.0}},
    {"thresholdedrelu", 1, {[](double x, double a, double) { return x > a ? x : 0; }, 1.0, 0.0}},
    {"scaledtanh", 2, {[](double x, double a, double b) { return a * std::tanh(b * x); }, 1.0, 1.0}},
    {"hardsigmoid", 2, {[](double x, double a, double b) { return std::clamp(a * x + b, 0.0, 1.0); }, 0.2, 0.5}},
    {"elu", 1, {[](double x, double a, double) { return x < 0 ? a * std::expm1(x) : x; }, 1.0, 0.0}},
};

template <typename T>
const T* ListOf(const Call& call, std::string_view name) {
  const Attr* attr = call.node.attrs.Find(name);
  return attr == nullptr ? nullptr : std::get_if<T>(attr);
}

// As many as the attribute names, its alphas and betas handed out in their order to those that have any.
Result<std::vector<Activation>> ActivationsOf(const Call& call, std::vector<std::string> names) {
  if (const auto* given = ListOf<std::vector<std::string>>(call, "activations"); given != nullptr && !given->empty()) {
    if (given->size() != names.size()) return Fail("{} activations instead of {}", given->size(), names.size());
    names = *given;
  }
  const auto* alphas = ListOf<std::vector<float>>(call, "activation_alpha");
  const auto* betas = ListOf<std::vector<float>>(call, "activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<Activation> out;
  for (const std::string& name : names) {
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const Form* form = std::ranges::find(kForms, lower, &Form::name);
    if (form == std::end(kForms)) return Fail("the activation {} is not one of ONNX", Quoted(name));
    Activation a = form->defaults;
    if (form->parameters > 0 && alphas != nullptr && alpha < alphas->size()) a.alpha = (*alphas)[alpha++];
    if (form->parameters > 1 && betas != nullptr && beta < betas->size()) a.beta = (*betas)[beta++];
    out.push_back(a);
  }
  return out;
}

// All operands as f64, in the layout [directions, batch, hidden] for states.
struct Plan {
  int64_t steps = 0, batch = 0, width = 0, hidden = 0, directions = 1, gates = 1;
  bool batch_first = false, reverse_first = false;
  double clip = INFINITY;
  Tensor x, w, r, bias, h0;
  std::vector<int64_t> lengths;
  std::vector<Activation> f;
  // What one step reads: the gates' sums of x and of the state, [gates * hidden] each, biases included.
  std::vector<double> of_x, of_state;

  int64_t State(int64_t d, int64_t b) const { return (batch_first ? b * directions + d : d * batch + b) * hidden; }
  int64_t Row(int64_t t, int64_t b) const { return batch_first ? b * steps + t : t * batch + b; }
  int64_t Result(int64_t t, int64_t d, int64_t b) const {
    return (batch_first ? (b * steps + t) * directions + d : (t * directions + d) * batch + b) * hidden;
  }
  Shape StateShape() const { return batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden}; }
  double Clip(double v) const { return std::clamp(v, -clip, clip); }
};

Status ExpectShape(const Tensor& t, const Shape& shape, std::string_view what) {
  if (t.shape() != shape) return Fail("{} is {}, expected {}", what, Describe(t), ToString(shape));
  return {};
}

Result<Tensor> OptionalDoubles(const Call& call, size_t i, const Shape& shape, std::string_view what) {
  if (!call.Has(i)) return AllocZeros(DType::kF64, shape);
  OCTAVO_TRY_STATUS(ExpectShape(call.T(i), shape, what));
  return Doubles(call.T(i));
}

Status PlanLengths(const Call& call, Plan& p) {
  ChargeWork(static_cast<size_t>(p.batch) * sizeof(int64_t));
  p.lengths.assign(static_cast<size_t>(p.batch), p.steps);
  if (!call.Has(4)) return {};
  OCTAVO_TRY(p.lengths, IntsOf(call.T(4), "the lengths of the sequences"));
  OCTAVO_TRY_STATUS(ExpectShape(call.T(4), {p.batch}, "sequence_lens"));
  for (const int64_t n : p.lengths) {
    if (n < 0 || n > p.steps) return Fail("a sequence of length {} in {} steps", n, p.steps);
  }
  return {};
}

Result<Plan> PlanOf(const Call& call, int64_t gates, const std::vector<std::string>& names) {
  Plan p;
  p.gates = gates;
  if (call.T(0).rank() != 3 || call.T(1).rank() != 3 || call.T(2).rank() != 3)
    return Fail("X, W and R must have rank 3");
  const std::string direction = call.node.attrs.Str("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return Fail("direction must be forward, reverse or bidirectional");
  p.directions = direction == "bidirectional" ? 2 : 1;
  p.reverse_first = direction == "reverse";
  p.batch_first = call.Int("layout", 0) != 0;
  const Shape& x = call.T(0).shape();
  p.steps = x[p.batch_first ? 1 : 0];
  p.batch = x[p.batch_first ? 0 : 1];
  p.width = x[2];
  p.hidden = call.T(2).shape()[2];
  if (p.hidden < 1 || p.hidden > (int64_t{1} << 30)) return Fail("R is {}: no hidden state", Describe(call.T(2)));
  if (call.Int("hidden_size", p.hidden) != p.hidden)
    return Fail("hidden_size disagrees with R, {}", Describe(call.T(2)));
  const int64_t rows = gates * p.hidden;
  OCTAVO_TRY_STATUS(ExpectShape(call.T(1), {p.directions, rows, p.width}, "W"));
  OCTAVO_TRY_STATUS(ExpectShape(call.T(2), {p.directions, rows, p.hidden}, "R"));
  OCTAVO_TRY(p.x, Doubles(call.T(0)));
  OCTAVO_TRY(p.w, Doubles(call.T(1)));
  OCTAVO_TRY(p.r, Doubles(call.T(2)));
  OCTAVO_TRY(p.bias, OptionalDoubles(call, 3, {p.directions, 2 * rows}, "B"));
  OCTAVO_TRY(p.h0, OptionalDoubles(call, 5, p.StateShape(), "initial_h"));
  OCTAVO_TRY_STATUS(PlanLengths(call, p));
  std::vector<std::string> all = names;
  if (p.directions == 2) all.insert(all.end(), names.begin(), names.end());
  OCTAVO_TRY(p.f, ActivationsOf(call, std::move(all)));
  if (call.node.attrs.Has("clip")) p.clip = call.Float("clip", 0.0f);
  if (!(p.clip >= 0)) return Fail("clip is {}", p.clip);
  p.of_x = WorkVector<double>(rows);
  p.of_state = WorkVector<double>(rows);
  return p;
}

// out[i] = bias[i] + sum over j of m[i, j] * v[j]
void Product(const double* m, const double* v, const double* bias, int64_t columns, std::vector<double>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = bias[i];
    for (int64_t j = 0; j < columns; ++j) sum += m[static_cast<int64_t>(i) * columns + j] * v[j];
    out[i] = sum;
  }
}

// step(direction, time, sequence, state h) changes h, which is then the output of that time.
template <typename Step>
Status Walk(Call& call, Plan& p, Step step) {
  const DType type = call.T(0).dtype();
  Shape shape =
      p.batch_first ? Shape{p.batch, p.steps, p.directions, p.hidden} : Shape{p.steps, p.directions, p.batch, p.hidden};
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, std::move(shape)));
  Tensor last = Tensor::Empty(DType::kF64, p.StateShape());
  const int64_t rows = p.gates * p.hidden;
  for (int64_t d = 0; d < p.directions; ++d) {
    const bool backward = d == 1 || p.reverse_first;
    const double* bias = In(p.bias) + d * 2 * rows;
    for (int64_t b = 0; b < p.batch; ++b) {
      double* h = Out(last) + p.State(d, b);
      std::copy_n(In(p.h0) + p.State(d, b), p.hidden, h);
      const int64_t n = p.lengths[static_cast<size_t>(b)];
      for (int64_t i = 0; i < n; ++i) {
        const int64_t t = backward ? n - 1 - i : i;
        Product(In(p.w) + d * rows * p.width, In(p.x) + p.Row(t, b) * p.width, bias, p.width, p.of_x);
        Product(In(p.r) + d * rows * p.hidden, h, bias + rows, p.hidden, p.of_state);
        step(d, b, h);
        std::copy_n(h, p.hidden, Out(y) + p.Result(t, d, b));
      }
      if (call.interrupted && call.interrupted()) return Fail("interrupted");
    }
  }
  OCTAVO_TRY_STATUS(ReturnAs(call, y, type, 0));
  return ReturnAs(call, last, type, 1);
}

Status Rnn(Call& call) {
  OCTAVO_TRY(Plan p, PlanOf(call, 1, {"Tanh"}));
  return Walk(call, p, [&](int64_t d, int64_t, double* h) {
    for (size_t i = 0; i < p.of_x.size(); ++i) h[i] = p.f[static_cast<size_t>(d)](p.Clip(p.of_x[i] + p.of_state[i]));
  });
}

// Gates z, r, h. The state within the last gate: (r * h) R + Rb, or r * (h R + Rb) with linear_before_reset.
Status Gru(Call& call) {
  OCTAVO_TRY(Plan p, PlanOf(call, 3, {"Sigmoid", "Tanh"}));
  const bool linear_first = call.Int("linear_before_reset", 0) != 0;
  const auto n = static_cast<size_t>(p.hidden);
  std::vector<double> reset = WorkVector<double>(p.hidden), inner = WorkVector<double>(p.hidden);
  return Walk(call, p, [&](int64_t d, int64_t, double* h) {
    const Activation &f = p.f[static_cast<size_t>(2 * d)], &g = p.f[static_cast<size_t>(2 * d + 1)];
    for (size_t i = 0; i < n; ++i) reset[i] = f(p.Clip(p.of_x[n + i] + p.of_state[n + i]));
    if (linear_first) {
      for (size_t i = 0; i < n; ++i) inner[i] = reset[i] * p.of_state[2 * n + i];
    } else {
      for (size_t i = 0; i < n; ++i) reset[i] *= h[i];
      const int64_t rows = 3 * p.hidden;
      Product(In(p.r) + (d * rows + 2 * p.hidden) * p.hidden, reset.data(),
              In(p.bias) + d * 2 * rows + rows + 2 * p.hidden, p.hidden, inner);
    }
    for (size_t i = 0; i < n; ++i) {
      const double z = f(p.Clip(p.of_x[i] + p.of_state[i]));
      h[i] = (1 - z) * g(p.Clip(p.of_x[2 * n + i] + inner[i])) + z * h[i];
    }
  });
}

// Gates i, o, f, c; peepholes of i, o, f.
Status Lstm(Call& call) {
  OCTAVO_TRY(Plan p, PlanOf(call, 4, {"Sigmoid", "Tanh", "Tanh"}));
  OCTAVO_TRY(Tensor cells, OptionalDoubles(call, 6, p.StateShape(), "initial_c"));
  if (cells.buffer().use_count() > 1) {  // an f64 operand itself
    Tensor copy = Tensor::Empty(DType::kF64, cells.shape());
    std::copy_n(In(cells), cells.size(), Out(copy));
    cells = std::move(copy);
  }
  OCTAVO_TRY(const Tensor peep, OptionalDoubles(call, 7, {p.directions, 3 * p.hidden}, "P"));
  const bool coupled = call.Int("input_forget", 0) != 0;
  const auto n = static_cast<size_t>(p.hidden);
  OCTAVO_TRY_STATUS(Walk(call, p, [&](int64_t d, int64_t b, double* h) {
    const Activation* f = &p.f[static_cast<size_t>(3 * d)];
    const double* peephole = In(peep) + d * 3 * p.hidden;
    double* c = Out(cells) + p.State(d, b);
    for (size_t i = 0; i < n; ++i) {
      const auto gate = [&](size_t k) { return p.of_x[k * n + i] + p.of_state[k * n + i]; };
      const double in = f[0](p.Clip(gate(0) + peephole[i] * c[i]));
      const double forget = coupled ? 1 - in : f[0](p.Clip(gate(2) + peephole[2 * n + i] * c[i]));
      c[i] = forget * c[i] + in * f[1](p.Clip(gate(3)));
      h[i] = f[0](p.Clip(gate(1) + peephole[n + i] * c[i])) * f[2](c[i]);
    }
  }));
  return ReturnAs(call, cells, call.T(0).dtype(), 2);
}

}  // namespace

void RegisterRecurrent(Table& t) {
  t.Set(Op::kRNN, Rnn);
  t.Set(Op::kGRU, Gru);
  t.Set(Op::kLSTM, Lstm);
}

}  // namespace octavo::ir::interpret
