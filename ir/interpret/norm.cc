// LayerNormalization, RMSNormalization, BatchNormalization, GroupNormalization, InstanceNormalization. float32 rows go
// through quant::LayerNormRow and RmsNormRow; 16-bit floats are widened and rounded once; double by plain formulas.
#include <cmath>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

namespace {

struct Moments {
  double mean, inverse;  // inverse standard deviation
};

Moments MomentsOf(const float* x, int64_t n, float epsilon) {
  const float mean = quant::Sum16(x, n) / static_cast<float>(n);
  std::vector<float> d(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) d[static_cast<size_t>(i)] = x[i] - mean;
  const float variance = quant::SumSquares16(d.data(), n) / static_cast<float>(n);
  return {mean, 1.0f / std::sqrt(variance + epsilon)};
}
Moments MomentsOf(const double* x, int64_t n, float epsilon) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

void LayerNormRow(const float* x, int64_t n, const float* gamma, const float* beta, float epsilon, float* y) {
  quant::LayerNormRow(x, n, gamma, beta, epsilon, y);
}
void LayerNormRow(const double* x, int64_t n, const double* gamma, const double* beta, float epsilon, double* y) {
  const Moments m = MomentsOf(x, n, epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m.mean) * m.inverse * gamma[i] + (beta == nullptr ? 0.0 : beta[i]);
}
void RmsNormRow(const float* x, int64_t n, const float* gamma, float epsilon, float* y) {
  quant::RmsNormRow(x, n, gamma, epsilon, y);
}
void RmsNormRow(const double* x, int64_t n, const double* gamma, float epsilon, double* y) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const double r = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r * gamma[i];
}

DType WorkType(DType t) { return t == DType::kF64 ? DType::kF64 : DType::kF32; }

Status FloatOnly(DType t) { return quant::IsComputedFloat(t) ? Status{} : Status(BadType(t)); }

// `t` in the type `mid`, repeated to `shape`.
Result<Tensor> SpreadTo(const Tensor& t, const Shape& shape, DType mid) {
  OCTAVO_TRY(const Tensor x, CastTo(t, mid));
  OCTAVO_TRY(const Shape both, BroadcastShapes(x.shape(), shape));
  if (both != shape) return Fail("{} does not broadcast to {}", Describe(t), ToString(shape));
  Tensor y = Tensor::Empty(mid, shape);
  CopyStrided(x.data(), BroadcastStrides(x.shape(), shape), y.mutable_data(), StridesOf(shape), shape,
              static_cast<size_t>(quant::BitsOf(mid) / 8));
  return y;
}

// Rows of an operand: everything from `axis` on is one row.
struct RowNorm {
  Tensor x, gamma, beta;  // in the work type, gamma and beta of the size of a row, or of all rows
  size_t axis = 0;
  int64_t n = 1, rows = 1;

  template <typename C>
  const C* Gamma(int64_t row) const {
    return Ptr<C>(gamma) + (gamma.size() == n ? 0 : row * n);
  }
  template <typename C>
  const C* Beta(int64_t row) const {
    return beta.defined() ? Ptr<C>(beta) + (beta.size() == n ? 0 : row * n) : nullptr;
  }
};
// ONNX's bodies of these ops multiply and add like any other Mul and Add, so that a scale may differ from row to row.
Result<Tensor> SpreadOverRows(const Tensor& t, const Shape& x, const Shape& row, DType mid) {
  Shape own = t.shape();
  while (own.size() > row.size() && own.front() == 1) own.erase(own.begin());
  return own.size() > row.size() ? SpreadTo(t, x, mid) : SpreadTo(t.Reshaped(own), row, mid);
}
Result<RowNorm> PrepareRows(const Call& call) {
  RowNorm r;
  const Tensor& x = call.T(0);
  OCTAVO_TRY_STATUS(FloatOnly(x.dtype()));
  const DType mid = WorkType(x.dtype());
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", -1), x.rank()));
  r.axis = static_cast<size_t>(axis);
  const Shape row(x.shape().begin() + axis, x.shape().end());
  r.n = ElementCount(row);
  r.rows = Count(x.shape(), 0, r.axis);
  OCTAVO_TRY(r.x, CastTo(x, mid));
  OCTAVO_TRY(r.gamma, SpreadOverRows(call.T(1), x.shape(), row, mid));
  if (call.Has(2)) {
    OCTAVO_TRY(r.beta, SpreadOverRows(call.T(2), x.shape(), row, mid));
  }
  return r;
}

template <typename C>
void LayerNormRows(const RowNorm& r, float epsilon, Tensor& y, Tensor* mean, Tensor* inverse) {
  for (int64_t i = 0; i < r.rows; ++i) {
    const C* row = Ptr<C>(r.x) + i * r.n;
    LayerNormRow(row, r.n, r.Gamma<C>(i), r.Beta<C>(i), epsilon, MutablePtr<C>(y) + i * r.n);
    if (mean == nullptr && inverse == nullptr) continue;
    const Moments m = MomentsOf(row, r.n, epsilon);
    if (mean != nullptr) MutablePtr<C>(*mean)[i] = static_cast<C>(m.mean);
    if (inverse != nullptr) MutablePtr<C>(*inverse)[i] = static_cast<C>(m.inverse);
  }
}

Status LayerNormalization(Call& call) {
  OCTAVO_TRY(const RowNorm r, PrepareRows(call));
  const DType type = call.T(0).dtype(), mid = r.x.dtype();
  const float epsilon = call.Float("epsilon", 1e-5f);
  Tensor y = Tensor::Empty(mid, r.x.shape());
  Shape reduced = r.x.shape();
  for (size_t i = r.axis; i < reduced.size(); ++i) reduced[i] = 1;
  Tensor mean = Tensor::Empty(mid, reduced), inverse = Tensor::Empty(mid, reduced);
  Tensor* wants_mean = call.Wants(1) ? &mean : nullptr;
  Tensor* wants_inverse = call.Wants(2) ? &inverse : nullptr;
  if (mid == DType::kF64) {
    LayerNormRows<double>(r, epsilon, y, wants_mean, wants_inverse);
  } else {
    LayerNormRows<float>(r, epsilon, y, wants_mean, wants_inverse);
  }
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(std::move(y));
  // The statistics have stash_type, float32 by default.
  OCTAVO_TRY(const DType stash, TypeAttr(call, "stash_type", DType::kF32));
  if (wants_mean != nullptr) {
    OCTAVO_TRY(mean, CastTo(mean, stash));
    call.Return(std::move(mean), 1);
  }
  if (wants_inverse != nullptr) {
    OCTAVO_TRY(inverse, CastTo(inverse, stash));
    call.Return(std::move(inverse), 2);
  }
  return {};
}

Status RmsNormalization(Call& call) {
  OCTAVO_TRY(const RowNorm r, PrepareRows(call));
  const float epsilon = call.Float("epsilon", 1e-5f);
  Tensor y = Tensor::Empty(r.x.dtype(), r.x.shape());
  for (int64_t i = 0; i < r.rows; ++i) {
    const int64_t at = i * r.n;
    if (r.x.dtype() == DType::kF64) {
      RmsNormRow(Ptr<double>(r.x) + at, r.n, r.Gamma<double>(i), epsilon, MutablePtr<double>(y) + at);
    } else {
      RmsNormRow(Ptr<float>(r.x) + at, r.n, r.Gamma<float>(i), epsilon, MutablePtr<float>(y) + at);
    }
  }
  OCTAVO_TRY(y, CastTo(y, call.T(1).dtype()));  // ONNX: the result has the scale's type
  call.Return(std::move(y));
  return {};
}

// --- norms over channels: x [N, C, ...] ------------------------------------------------------------------------

Status CheckChannels(const Call& call, size_t first, size_t last) {
  OCTAVO_TRY_STATUS(FloatOnly(call.T(0).dtype()));
  if (call.T(0).rank() < 2) return Fail("the operand must have rank 2 or more");
  for (size_t i = first; i <= last; ++i) {
    if (call.T(i).rank() != 1 || call.T(i).size() != call.T(0).shape()[1]) {
      return Fail("operand {} must have one element per channel, {}", i, call.T(0).shape()[1]);
    }
  }
  return {};
}

// y = (x - mean) * inverse * scale + bias on `groups` groups of channels of each sample.
template <typename C>
void GroupRows(const Tensor& x, int64_t groups, const C* scale, const C* bias, float epsilon, Tensor& y) {
  const int64_t samples = x.shape()[0], channels = x.shape()[1];
  const int64_t inner = Count(x.shape(), 2, x.shape().size());
  const int64_t per_group = channels / groups, n = per_group * inner;
  for (int64_t g = 0; g < samples * groups; ++g) {
    const C* row = Ptr<C>(x) + g * n;
    C* out = MutablePtr<C>(y) + g * n;
    const Moments m = MomentsOf(row, n, epsilon);
    const auto mean = static_cast<C>(m.mean), inverse = static_cast<C>(m.inverse);
    for (int64_t c = 0; c < per_group; ++c) {
      const int64_t channel = g % groups * per_group + c;
      for (int64_t i = c * inner; i < (c + 1) * inner; ++i) {
        out[i] = ((row[i] - mean) * inverse) * scale[channel] + bias[channel];
      }
    }
  }
}

Status Grouped(Call& call, int64_t groups, const Tensor& scale, const Tensor& bias) {
  const DType type = call.T(0).dtype(), mid = WorkType(type);
  const float epsilon = call.Float("epsilon", 1e-5f);
  OCTAVO_TRY(const Tensor x, CastTo(call.T(0), mid));
  OCTAVO_TRY(const Tensor s, CastTo(scale, mid));
  OCTAVO_TRY(const Tensor b, CastTo(bias, mid));
  Tensor y = Tensor::Empty(mid, x.shape());
  if (mid == DType::kF64) {
    GroupRows<double>(x, groups, Ptr<double>(s), Ptr<double>(b), epsilon, y);
  } else {
    GroupRows<float>(x, groups, Ptr<float>(s), Ptr<float>(b), epsilon, y);
  }
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(std::move(y));
  return {};
}

Status InstanceNormalization(Call& call) {
  OCTAVO_TRY_STATUS(CheckChannels(call, 1, 2));
  if (call.T(0).shape()[1] == 0) return Fail("the operand has no channels");
  return Grouped(call, call.T(0).shape()[1], call.T(1), call.T(2));
}

// Opset 21 has one scale per channel, opset 18 one per group: told apart by their number.
Status GroupNormalization(Call& call) {
  OCTAVO_TRY_STATUS(FloatOnly(call.T(0).dtype()));
  if (call.T(0).rank() < 2) return Fail("the operand must have rank 2 or more");
  const int64_t channels = call.T(0).shape()[1], groups = call.Int("num_groups", 0);
  if (groups <= 0 || channels == 0 || channels % groups != 0) {
    return Fail("{} channels do not make {} groups", channels, groups);
  }
  Tensor parameters[2] = {call.T(1), call.T(2)};
  for (Tensor& t : parameters) {
    if (t.rank() == 1 && t.size() == groups && groups != channels) {
      OCTAVO_TRY(t, SpreadTo(t.Reshaped({groups, 1}), {groups, channels / groups}, WorkType(t.dtype())));
      t = t.Reshaped({channels});
    }
    if (t.rank() != 1 || t.size() != channels)
      return Fail("scale and bias must have one element per channel, {}", channels);
  }
  return Grouped(call, groups, parameters[0], parameters[1]);
}

// Mean and population variance of each channel over samples and positions.
void ChannelMoments(const Tensor& x, std::vector<double>* mean, std::vector<double>* variance) {
  const int64_t samples = x.shape()[0], channels = x.shape()[1];
  const int64_t inner = Count(x.shape(), 2, x.shape().size());
  const auto n = static_cast<double>(samples * inner);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    const auto each = [&](auto f) {
      for (int64_t s = 0; s < samples; ++s) {
        for (int64_t i = 0; i < inner; ++i) f(x.GetDouble((s * channels + c) * inner + i));
      }
    };
    each([&](double v) { sum += v; });
    each([&](double v) { squares += (v - sum / n) * (v - sum / n); });
    mean->push_back(sum / n);
    variance->push_back(squares / n);
  }
}

template <typename T>
void BatchRows(const Tensor& x, const Tensor& scale, const Tensor& bias, const std::vector<double>& mean,
               const std::vector<double>& variance, float epsilon, Tensor& y) {
  using C = Compute<T>;
  const int64_t channels = x.shape()[1], inner = Count(x.shape(), 2, x.shape().size());
  for (int64_t line = 0; line < x.shape()[0] * channels; ++line) {
    const auto c = line % channels;
    const auto m = static_cast<C>(mean[static_cast<size_t>(c)]), v = static_cast<C>(variance[static_cast<size_t>(c)]);
    const auto root = std::sqrt(v + static_cast<C>(epsilon));
    const auto s = static_cast<C>(scale.GetDouble(c)), b = static_cast<C>(bias.GetDouble(c));
    for (int64_t i = line * inner; i < (line + 1) * inner; ++i) {
      MutablePtr<T>(y)[i] = Down<T>(s * (Up(Ptr<T>(x)[i]) - m) / root + b);
    }
  }
}

Status BatchNormalization(Call& call) {
  OCTAVO_TRY_STATUS(CheckChannels(call, 1, 4));
  const Tensor& x = call.T(0);
  std::vector<double> mean, variance;
  if (call.Int("training_mode", 0) != 0) {
    ChannelMoments(x, &mean, &variance);
    const double keep = call.Float("momentum", 0.9f);
    for (size_t k = 0; k < 2; ++k) {
      Tensor running = Tensor::Empty(DType::kF64, call.T(3 + k).shape());
      const std::vector<double>& now = k == 0 ? mean : variance;
      for (int64_t c = 0; c < running.size(); ++c) {
        running.mutable_as<double>()[static_cast<size_t>(c)] =
            call.T(3 + k).GetDouble(c) * keep + now[static_cast<size_t>(c)] * (1.0 - keep);
      }
      OCTAVO_TRY(running, CastTo(running, call.T(3 + k).dtype()));
      call.Return(std::move(running), 1 + k);
    }
  } else {
    for (int64_t c = 0; c < x.shape()[1]; ++c) {
      mean.push_back(call.T(3).GetDouble(c));
      variance.push_back(call.T(4).GetDouble(c));
    }
  }
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    BatchRows<T>(x, call.T(1), call.T(2), mean, variance, call.Float("epsilon", 1e-5f), y);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterNorm(Table& t) {
  t.Set(Op::kLayerNormalization, LayerNormalization);
  t.Set(Op::kRMSNormalization, RmsNormalization);
  t.Set(Op::kInstanceNormalization, InstanceNormalization);
  t.Set(Op::kGroupNormalization, GroupNormalization);
  t.Set(Op::kBatchNormalization, BatchNormalization);
}

}  // namespace octavo::ir::interpret
