// Whether the data is enough to fit weights to: fitted to one half of it, they must be nearer to the model on the other half than without.
#include <algorithm>
#include <cmath>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/rounding.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

constexpr int64_t kColumns = 64;  // that are tried; all are alike in what data does to them

Tensor FirstColumns(const Tensor& w) {
  const int64_t k = w.shape()[0], n = w.shape()[1], few = std::min(n, kColumns);
  Tensor out = Tensor::Empty(DType::kF32, {k, few});
  for (int64_t i = 0; i < k; ++i)
    std::copy_n(w.as<float>().data() + i * n, few, out.mutable_as<float>().data() + i * few);
  return out;
}

// tr(E' H E) of the errors E = W - codes * scales.
double ErrorOn(const std::vector<float>& h, const Tensor& w, const Tensor& codes, std::span<const float> scales) {
  const auto k = static_cast<size_t>(w.shape()[0]), n = static_cast<size_t>(w.shape()[1]);
  std::vector<double> e(k * n), row(n);
  for (size_t i = 0; i < k * n; ++i)
    e[i] = static_cast<double>(w.as<float>()[i]) -
           static_cast<double>(codes.as<int8_t>()[i]) * static_cast<double>(scales[i % n]);
  double sum = 0;
  for (size_t i = 0; i < k; ++i) {
    for (size_t c = 0; c < n; ++c) row[c] = 0.5 * h[i * k + i] * e[i * n + c];
    for (size_t j = i + 1; j < k; ++j) {
      const double share = h[i * k + j];
      for (size_t c = 0; c < n; ++c) row[c] += share * e[j * n + c];
    }
    for (size_t c = 0; c < n; ++c) sum += 2 * e[i * n + c] * row[c];
  }
  return sum;
}

}  // namespace

std::optional<double> LostByFitting(const Tensor& w, int limit, std::vector<SecondMoments> halves,
                                    const ParallelFor& parallel) {
  if (halves.size() != 2 || halves[0].empty() || halves[1].empty() || w.dtype() != DType::kF32) return {};
  const Tensor few = FirstColumns(w);
  const auto scales = ColumnScales(few, DType::kS8, limit);
  const auto nearest = QuantizeColumns(few, DType::kS8, limit);
  const auto fit = Factor(std::move(halves[0]), parallel);
  if (!scales || !nearest || !fit) return {};
  const auto fitted = RoundColumns(few, *scales, {DType::kS8, limit}, *fit, parallel);
  if (!fitted) return {};
  const std::vector<float> other = halves[1].Sums();
  const double with = ErrorOn(other, few, *fitted, *scales), without = ErrorOn(other, few, nearest->codes, *scales);
  if (!(without > 0) || !std::isfinite(with) || with < without) return {};
  return with / without - 1;
}

}  // namespace octavo::passes::quantize
