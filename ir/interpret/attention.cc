// Attention (opset 23, and 24 with the number of valid keys), in ONNX's own order: Q*sqrt(scale) times K*sqrt(scale),
// soft cap, mask, Softmax, times V. The soft cap stands before the mask, as ONNX corrected it after 1.18 (a cap after
// it would let masked keys through); qk_matmul_output_mode 1 is after the cap, 2 after the mask. Row sums and exp are
// those of quant::SoftmaxRow. A wholly masked row (all scores -inf) has probabilities 0, ONNX's correction of 1.23 (up
// to 1.22: NaN), and what torch gives. Causal: key j <= query i + keys that came before the block.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/ir/interpret/heads.h"
#include "octavo/ir/interpret/products.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

namespace {

struct AttentionPlan {
  Tensor q, k, v;  // [B,H,S,D] in the work type, past included
  Tensor mask;     // work type, added; or undefined
  std::vector<int64_t> mask_strides;
  int64_t mask_keys = 0;  // keys beyond are masked
  int64_t batch = 0, heads = 0, groups = 0, queries = 0, keys = 0, dim = 0, v_dim = 0;
  double scale = 1, cap = 0;
  int64_t mode = 0;
  bool causal = false;
  std::vector<int64_t> offset, valid;  // per batch: keys before the block; keys that count
  DType precision = DType::kUndefined;
};

Result<Tensor> WithPast(const Call& call, size_t slot, const Tensor& now) {
  if (!call.Has(slot)) return now;
  const Tensor& past = call.T(slot);
  if (past.rank() != 4 || past.dtype() != now.dtype() || past.shape()[0] != now.shape()[0] ||
      past.shape()[1] != now.shape()[1] || past.shape()[3] != now.shape()[3]) {
    return Fail("the past {} does not fit {}", Describe(past), Describe(now));
  }
  Shape shape = now.shape();
  shape[2] += past.shape()[2];
  OCTAVO_TRY(Tensor y, Alloc(now.dtype(), shape));
  const auto bytes = static_cast<size_t>(quant::BitsOf(now.dtype()) / 8);
  const size_t old_row = static_cast<size_t>(past.shape()[2] * shape[3]) * bytes;
  const size_t new_row = static_cast<size_t>(now.shape()[2] * shape[3]) * bytes;
  std::byte* to = y.mutable_data();
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    std::memcpy(to, past.data() + static_cast<size_t>(i) * old_row, old_row);
    std::memcpy(to + old_row, now.data() + static_cast<size_t>(i) * new_row, new_row);
    to += old_row + new_row;
  }
  return y;
}

Status PlanMask(const Call& call, DType mid, AttentionPlan& p) {
  const int64_t past = call.Has(4) ? call.T(4).shape()[2] : 0;
  ChargeWork(2 * static_cast<size_t>(p.batch) * sizeof(int64_t));
  p.offset.assign(static_cast<size_t>(p.batch), past);
  p.valid.assign(static_cast<size_t>(p.batch), p.keys);
  if (call.Has(6)) {
    OCTAVO_TRY(p.valid, IntsOf(call.T(6), "the numbers of valid keys"));
    if (static_cast<int64_t>(p.valid.size()) != p.batch)
      return Fail("{} numbers of keys for a batch of {}", p.valid.size(), p.batch);
    for (size_t b = 0; b < p.valid.size() && !call.Has(4); ++b)
      p.offset[b] = std::max(p.valid[b], int64_t{0}) - p.queries;
  }
  p.mask_keys = p.keys;
  if (!call.Has(3)) return {};
  Tensor mask = call.T(3);
  if (mask.rank() < 1 || mask.rank() > 4) return Fail("the mask must have rank 1 to 4");
  if (mask.shape().back() != 1) p.mask_keys = mask.shape().back();
  if (p.mask_keys > p.keys) return Fail("the mask has {} keys, the operands {}", p.mask_keys, p.keys);
  const Shape full = {p.batch, p.heads, p.queries, p.mask_keys};
  const auto both = BroadcastShapes(mask.shape(), full);
  if (!both || *both != full) return Fail("the mask {} does not broadcast to {}", Describe(mask), ToString(full));
  p.mask_strides = BroadcastStrides(mask.shape(), full);
  if (mask.dtype() == DType::kBool) {  // true: takes part
    Tensor bias = Tensor::Empty(DType::kF32, mask.shape());
    for (size_t i = 0; i < mask.byte_size(); ++i) {
      bias.mutable_as<float>()[i] = mask.as<uint8_t>()[i] != 0 ? 0.0f : -INFINITY;
    }
    mask = std::move(bias);
  }
  OCTAVO_TRY(p.mask, CastTo(mask, mid));
  return {};
}

Result<AttentionPlan> PlanAttention(Call& call, DType mid) {
  AttentionPlan p;
  if (call.Int("left_window_size", -1) != -1 || call.Int("right_window_size", -1) != -1) {
    return Fail("octavo knows no window of this op");
  }
  const int64_t q_heads = call.Int("q_num_heads", 0), kv_heads = call.Int("kv_num_heads", 0);
  for (size_t i = 1; i < 3; ++i) {
    if (call.T(i).rank() != call.T(0).rank() || call.T(i).dtype() != call.T(0).dtype()) {
      return Fail("Q, K and V must have equal ranks and types");
    }
  }
  OCTAVO_TRY(const Tensor q, SplitHeads(call.T(0), q_heads, "Q"));
  OCTAVO_TRY(const Tensor k, SplitHeads(call.T(1), kv_heads, "K"));
  OCTAVO_TRY(const Tensor v, SplitHeads(call.T(2), kv_heads, "V"));
  if (call.Has(4) != call.Has(5)) return Fail("past_key and past_value must come together");
  OCTAVO_TRY(Tensor keys, WithPast(call, 4, k));
  OCTAVO_TRY(Tensor values, WithPast(call, 5, v));
  p.batch = q.shape()[0];
  p.heads = q.shape()[1];
  p.queries = q.shape()[2];
  p.dim = q.shape()[3];
  p.groups = keys.shape()[1];
  p.keys = keys.shape()[2];
  p.v_dim = values.shape()[3];
  if (keys.shape()[0] != p.batch || values.shape()[0] != p.batch || keys.shape()[3] != p.dim ||
      values.shape()[1] != p.groups || values.shape()[2] != p.keys || p.groups == 0 || p.heads % p.groups != 0) {
    return Fail("Q, K and V do not fit each other (K with past {}, V with past {})", Describe(keys), Describe(values));
  }
  OCTAVO_TRY(p.q, CastTo(q, mid));
  OCTAVO_TRY(p.k, CastTo(keys, mid));
  OCTAVO_TRY(p.v, CastTo(values, mid));
  call.Return(std::move(keys), 1);
  call.Return(std::move(values), 2);
  p.scale = call.node.attrs.Has("scale") ? static_cast<double>(call.Float("scale", 1.0f))
                                         : 1.0 / std::sqrt(static_cast<double>(p.dim));
  p.cap = call.Float("softcap", 0.0f);
  p.mode = call.Int("qk_matmul_output_mode", 0);
  p.causal = call.Int("is_causal", 0) != 0;
  OCTAVO_TRY(p.precision, TypeAttr(call, "softmax_precision", DType::kUndefined));
  if (p.mode < 0 || p.mode > 3) return Fail("qk_matmul_output_mode {} is not known", p.mode);
  OCTAVO_TRY_STATUS(PlanMask(call, mid, p));
  return p;
}

inline float Tanh(float x) { return quant::Tanh(x); }
inline double Tanh(double x) { return std::tanh(x); }
inline void SoftmaxRow(float* x, int64_t n) { quant::SoftmaxRow(x, n, x); }
inline void SoftmaxRow(double* x, int64_t n) {
  double top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
}
inline void Multiply(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n) {
  MultiplyF32(a, b, c, m, k, n);
}
inline void Multiply(const double* a, const double* b, double* c, int64_t m, int64_t k, int64_t n) {
  MultiplyF64(a, b, c, m, k, n);
}

// Adds the mask, the causal frontier and the end of the valid keys to the scores of one head.
template <typename C>
void AddMask(const AttentionPlan& p, int64_t b, int64_t h, C* scores) {
  const auto minus = static_cast<C>(-INFINITY);
  for (int64_t i = 0; i < p.queries; ++i) {
    C* row = scores + i * p.keys;
    if (p.mask.defined()) {
      const auto& s = p.mask_strides;
      const C* mask = Ptr<C>(p.mask) + b * s[0] + h * s[1] + i * s[2];
      for (int64_t j = 0; j < p.mask_keys; ++j) row[j] = row[j] + mask[j * s[3]];
    }
    int64_t end = std::min(p.mask_keys, p.valid[static_cast<size_t>(b)]);
    if (p.causal) end = std::min(end, i + p.offset[static_cast<size_t>(b)] + 1);
    for (int64_t j = std::max<int64_t>(end, 0); j < p.keys; ++j) row[j] = row[j] + minus;
  }
}

// Rounds the scores to the type that the softmax is to be computed in, if that is narrower.
template <typename C>
Status RoundTo(DType precision, C* x, int64_t n) {
  if (precision != DType::kF16 && precision != DType::kBF16) return {};
  return ForFloats(precision, [&]<typename T>() -> Status {
    if constexpr (sizeof(T) == 2) {
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<C>(Up(Down<T>(static_cast<float>(x[i]))));
    }
    return {};
  });
}

// What one head needs beside its operands; made once.
template <typename C>
struct HeadWork {
  std::vector<C> left, right, scores;
};

template <typename C>
Status Head(const AttentionPlan& p, int64_t b, int64_t h, HeadWork<C>& work, C* y, C* qk) {
  const int64_t kv = b * p.groups + h / (p.heads / p.groups);
  const C* q = Ptr<C>(p.q) + (b * p.heads + h) * p.queries * p.dim;
  const C* k = Ptr<C>(p.k) + kv * p.keys * p.dim;
  const auto root = static_cast<C>(std::sqrt(p.scale));
  auto& [left, right, scores] = work;
  std::ranges::fill(scores, C(0));
  for (size_t i = 0; i < left.size(); ++i) left[i] = q[i] * root;
  for (int64_t j = 0; j < p.keys; ++j) {
    for (int64_t d = 0; d < p.dim; ++d) right[static_cast<size_t>(d * p.keys + j)] = k[j * p.dim + d] * root;
  }
  Multiply(left.data(), right.data(), scores.data(), p.queries, p.dim, p.keys);
  const auto keep = [&](int64_t mode) {
    if (qk != nullptr && p.mode == mode) std::copy(scores.begin(), scores.end(), qk);
  };
  keep(0);
  if (p.cap > 0) {
    for (C& s : scores) s = Tanh(s / static_cast<C>(p.cap)) * static_cast<C>(p.cap);
  }
  keep(1);
  AddMask(p, b, h, scores.data());
  keep(2);
  OCTAVO_TRY_STATUS(RoundTo(p.precision, scores.data(), static_cast<int64_t>(scores.size())));
  for (int64_t i = 0; i < p.queries && p.keys > 0; ++i) {
    C* row = scores.data() + i * p.keys;
    if (std::all_of(row, row + p.keys, [](C s) { return s == static_cast<C>(-INFINITY); })) {
      std::fill_n(row, p.keys, C(0));
    } else {
      SoftmaxRow(row, p.keys);
    }
  }
  OCTAVO_TRY_STATUS(RoundTo(p.precision, scores.data(), static_cast<int64_t>(scores.size())));
  keep(3);
  Multiply(scores.data(), Ptr<C>(p.v) + kv * p.keys * p.v_dim, y, p.queries, p.keys, p.v_dim);
  return {};
}

template <typename C>
Status Heads(const AttentionPlan& p, Tensor& y, Tensor& qk) {
  HeadWork<C> work{WorkVector<C>(p.queries * p.dim), WorkVector<C>(p.dim * p.keys), WorkVector<C>(p.queries * p.keys)};
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t i = b * p.heads + h;
      C* scores = qk.defined() ? MutablePtr<C>(qk) + i * p.queries * p.keys : nullptr;
      OCTAVO_TRY_STATUS(Head<C>(p, b, h, work, MutablePtr<C>(y) + i * p.queries * p.v_dim, scores));
    }
  }
  return {};
}

Status Attention(Call& call) {
  const DType type = call.T(0).dtype();
  if (!quant::IsComputedFloat(type)) return BadType(type);
  const DType mid = type == DType::kF64 ? DType::kF64 : DType::kF32;
  OCTAVO_TRY(const AttentionPlan p, PlanAttention(call, mid));
  OCTAVO_TRY(Tensor y, AllocZeros(mid, {p.batch, p.heads, p.queries, p.v_dim}));
  Tensor qk;
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, Shape{p.batch, p.heads, p.queries, p.keys}));
  if (call.Wants(3)) qk = Tensor::Empty(mid, {p.batch, p.heads, p.queries, p.keys});
  OCTAVO_TRY_STATUS(mid == DType::kF64 ? Heads<double>(p, y, qk) : Heads<float>(p, y, qk));
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(call.T(0).rank() == 3 ? MergeHeads(y) : std::move(y));
  if (qk.defined()) {
    OCTAVO_TRY(qk, CastTo(qk, type));
    call.Return(std::move(qk), 3);
  }
  return {};
}

}  // namespace

void RegisterAttention(Table& t) { t.Set(Op::kAttention, Attention); }

}  // namespace octavo::ir::interpret
