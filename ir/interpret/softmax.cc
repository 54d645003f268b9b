// Softmax and LogSoftmax along any axis. float32 rows go through quant::SoftmaxRow, 16-bit floats too (widened, rounded
// once).
#include <cmath>
#include <vector>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

namespace {

void SoftmaxRow(const float* x, int64_t n, float* y) { quant::SoftmaxRow(x, n, y); }
void SoftmaxRow(const double* x, int64_t n, double* y) {
  double top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  for (int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) y[i] /= sum;
}

// (x - max) - log(sum(exp(x - max)))
void LogSoftmaxRow(const float* x, int64_t n, float* y) {
  const float top = quant::RowMax(x, n);
  std::vector<float> e(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] - top;
    e[static_cast<size_t>(i)] = quant::Exp(y[i]);
  }
  const float log_sum = std::log(quant::Sum16(e.data(), n));
  for (int64_t i = 0; i < n; ++i) y[i] -= log_sum;
}
void LogSoftmaxRow(const double* x, int64_t n, double* y) {
  double top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - top) - std::log(sum);
}

template <typename T, typename F>
void ForRows(const Tensor& x, Tensor& y, size_t axis, F row) {
  using C = Compute<T>;
  const int64_t n = x.shape()[axis];
  const int64_t inner = Count(x.shape(), axis + 1, x.shape().size());
  const int64_t outer = Count(x.shape(), 0, axis);
  std::vector<C> from(static_cast<size_t>(n)), to(static_cast<size_t>(n));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const T* in = Ptr<T>(x) + o * n * inner + i;
      T* out = MutablePtr<T>(y) + o * n * inner + i;
      if constexpr (std::is_same_v<T, C>) {
        if (inner == 1) {
          row(in, n, out);
          continue;
        }
      }
      for (int64_t j = 0; j < n; ++j) from[static_cast<size_t>(j)] = Up(in[j * inner]);
      row(from.data(), n, to.data());
      for (int64_t j = 0; j < n; ++j) out[j * inner] = Down<T>(to[static_cast<size_t>(j)]);
    }
  }
}

template <bool kLog>
Status Softmax(Call& call) {
  const Tensor& x = call.T(0);
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", -1), x.rank()));
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    using C = Compute<T>;
    if (x.size() == 0) return {};
    ForRows<T>(x, y, static_cast<size_t>(axis), [](const C* in, int64_t n, C* out) {
      if constexpr (kLog) {
        LogSoftmaxRow(in, n, out);
      } else {
        SoftmaxRow(in, n, out);
      }
    });
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterSoftmax(Table& t) {
  t.Set(Op::kSoftmax, Softmax<false>);
  t.Set(Op::kLogSoftmax, Softmax<true>);
}

}  // namespace octavo::ir::interpret
