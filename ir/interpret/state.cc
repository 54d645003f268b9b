// Ops that carry a state from token to token: CausalConvWithState, LinearAttention.
#include <cmath>

#include "octavo/ir/interpret/doubles.h"

namespace octavo::ir::interpret {

namespace {

// x [B, C, T], weight [C, 1, K], bias [C], past [B, C, K-1]: a depthwise convolution over past and x, and the last K-1 of them.
Status CausalConv(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape &shape = call.T(0).shape(), &kernel = call.T(1).shape();
  if (shape.size() != 3 || kernel.size() != 3 || kernel[0] != shape[1] || kernel[1] != 1 || kernel[2] < 1)
    return Fail("the operand must be [batch, channels, length], the weight [channels, 1, kernel]");
  const std::string activation = call.node.attrs.Str("activation", "none");
  const bool silu = activation == "silu" || activation == "swish";
  if (!silu && activation != "none") return Fail("activation must be silu, swish or none");
  const int64_t channels = shape[1], length = shape[2], taps = kernel[2], before = taps - 1;
  const Shape carried = {shape[0], channels, before};
  if (call.Has(2) && call.T(2).shape() != Shape{channels}) return Fail("the bias must have {} elements", channels);
  if (call.Has(3) && call.T(3).shape() != carried) return Fail("past_state must be {}", ToString(carried));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(const Tensor w, Doubles(call.T(1)));
  Tensor bias, past;
  if (call.Has(2)) {
    OCTAVO_TRY(bias, Doubles(call.T(2)));
  }
  if (call.Has(3)) {
    OCTAVO_TRY(past, Doubles(call.T(3)));
  }
  OCTAVO_TRY(Tensor present, AllocZeros(DType::kF64, carried));
  Tensor y = Tensor::Empty(DType::kF64, shape);
  std::vector<double> line = WorkVector<double>(before + length);
  for (int64_t i = 0; i < shape[0] * channels; ++i) {
    std::fill_n(line.begin(), before, 0.0);
    if (past.defined()) std::copy_n(In(past) + i * before, before, line.begin());
    std::copy_n(In(x) + i * length, length, line.begin() + before);
    for (int64_t t = 0; t < length; ++t) {
      double sum = bias.defined() ? In(bias)[i % channels] : 0.0;
      for (int64_t k = 0; k < taps; ++k) sum += line[static_cast<size_t>(t + k)] * In(w)[i % channels * taps + k];
      Out(y)[i * length + t] = silu ? sum / (1 + std::exp(-sum)) : sum;
    }
    std::copy_n(line.end() - before, before, Out(present) + i * before);
  }
  OCTAVO_TRY_STATUS(ReturnAs(call, y, type, 0));
  return ReturnAs(call, present, type, 1);
}

struct Recurrence {
  int64_t batch = 0, steps = 0, q_heads = 0, heads = 0, dk = 0, dv = 0;
  bool decays = false, delta = false;
  double scale = 1;
  Tensor q, k, v, decay, beta, state;
  int64_t decay_width = 0, beta_width = 0;  // of one token
};

Status PlanGates(const Call& call, Recurrence& p) {
  const Shape& q = call.T(0).shape();
  const auto gate = [&](size_t i, std::string_view name, Tensor& out, int64_t& width, int64_t one,
                        int64_t other) -> Status {
    if (!call.Has(i)) return Fail("{} is absent, but this update rule needs it", name);
    const Shape& s = call.T(i).shape();
    if (s.size() != 3 || s[0] != q[0] || s[1] != q[1] || (s[2] != one && s[2] != other))
      return Fail("{} is {}, expected {} or {} columns a token", name, Describe(call.T(i)), one, other);
    width = s[2];
    OCTAVO_TRY(out, Doubles(call.T(i)));
    return {};
  };
  if (p.decays) OCTAVO_TRY_STATUS(gate(4, "decay", p.decay, p.decay_width, p.heads, p.heads * p.dk));
  if (p.delta) OCTAVO_TRY_STATUS(gate(5, "beta", p.beta, p.beta_width, p.heads, 1));
  return {};
}

Result<Recurrence> PlanRecurrence(const Call& call) {
  Recurrence p;
  const std::string rule = call.node.attrs.Str("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
    return Fail("update_rule must be linear, gated, delta or gated_delta");
  p.decays = rule.starts_with("gated");
  p.delta = rule.ends_with("delta");
  p.q_heads = call.Int("q_num_heads", 0);
  p.heads = call.Int("kv_num_heads", 0);
  const Shape &q = call.T(0).shape(), &k = call.T(1).shape(), &v = call.T(2).shape();
  if (q.size() != 3 || k.size() != 3 || v.size() != 3) return Fail("query, key and value must have rank 3");
  p.batch = q[0], p.steps = q[1];
  constexpr int64_t kMostHeads = int64_t{1} << 20;  // times columns that does not overflow
  if (p.q_heads < 1 || p.q_heads > kMostHeads || p.heads < 1 || p.q_heads % p.heads != 0 || q[2] % p.q_heads != 0 ||
      k[2] % p.heads != 0 || v[2] % p.heads != 0 || q[2] / p.q_heads != k[2] / p.heads || k[0] != q[0] ||
      v[0] != q[0] || k[1] != q[1] || v[1] != q[1]) {
    return Fail("query, key and value do not make {} and {} heads", p.q_heads, p.heads);
  }
  p.dk = k[2] / p.heads, p.dv = v[2] / p.heads;
  p.scale = call.Float("scale", 0.0f);
  if (p.scale == 0) p.scale = 1 / std::sqrt(static_cast<double>(p.dk));
  OCTAVO_TRY(p.q, Doubles(call.T(0)));
  OCTAVO_TRY(p.k, Doubles(call.T(1)));
  OCTAVO_TRY(p.v, Doubles(call.T(2)));
  OCTAVO_TRY_STATUS(PlanGates(call, p));
  const Shape state = {p.batch, p.heads, p.dk, p.dv};
  OCTAVO_TRY(p.state, AllocZeros(DType::kF64, state));
  if (call.Has(3)) {
    if (call.T(3).shape() != state) return Fail("past_state is {}, expected {}", Describe(call.T(3)), ToString(state));
    OCTAVO_TRY(const Tensor past, Doubles(call.T(3)));
    std::copy_n(In(past), past.size(), Out(p.state));
  }
  return p;
}

// s [dk, dv] takes in the token at `row` (of batch and time) for one head of keys.
void Update(const Recurrence& p, int64_t row, int64_t head, double* s, std::vector<double>& told) {
  const double* k = In(p.k) + (row * p.heads + head) * p.dk;
  const double* v = In(p.v) + (row * p.heads + head) * p.dv;
  if (p.decays) {
    const double* g = In(p.decay) + row * p.decay_width;
    const bool per_head = p.decay_width == p.heads;
    for (int64_t i = 0; i < p.dk; ++i) {
      const double keep = std::exp(per_head ? g[head] : g[head * p.dk + i]);
      for (int64_t j = 0; j < p.dv; ++j) s[i * p.dv + j] *= keep;
    }
  }
  std::copy_n(v, p.dv, told.begin());
  double rate = 1;
  if (p.delta) {  // what the state does not say yet
    rate = In(p.beta)[row * p.beta_width + (p.beta_width == 1 ? 0 : head)];
    for (int64_t i = 0; i < p.dk; ++i) {
      for (int64_t j = 0; j < p.dv; ++j) told[static_cast<size_t>(j)] -= s[i * p.dv + j] * k[i];
    }
  }
  for (int64_t i = 0; i < p.dk; ++i) {
    for (int64_t j = 0; j < p.dv; ++j) s[i * p.dv + j] += rate * k[i] * told[static_cast<size_t>(j)];
  }
}

Status LinearAttention(Call& call) {
  const DType type = call.T(0).dtype();
  OCTAVO_TRY(Recurrence p, PlanRecurrence(call));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {p.batch, p.steps, p.q_heads * p.dv}));
  std::vector<double> told = WorkVector<double>(p.dv);
  for (int64_t row = 0; row < p.batch * p.steps; ++row) {
    for (int64_t head = 0; head < p.heads; ++head) {
      double* s = Out(p.state) + (row / p.steps * p.heads + head) * p.dk * p.dv;
      Update(p, row, head, s, told);
      for (int64_t h = 0; h < p.q_heads / p.heads; ++h) {
        const int64_t at = row * p.q_heads + head * (p.q_heads / p.heads) + h;
        for (int64_t i = 0; i < p.dk; ++i) {
          const double q = In(p.q)[at * p.dk + i] * p.scale;
          for (int64_t j = 0; j < p.dv; ++j) Out(y)[at * p.dv + j] += q * s[i * p.dv + j];
        }
      }
    }
  }
  OCTAVO_TRY_STATUS(ReturnAs(call, y, type, 0));
  return ReturnAs(call, p.state, call.Has(3) ? call.T(3).dtype() : type, 1);
}

}  // namespace

void RegisterState(Table& t) {
  t.Set(Op::kCausalConvWithState, CausalConv);
  t.Set(Op::kLinearAttention, LinearAttention);
}

}  // namespace octavo::ir::interpret
