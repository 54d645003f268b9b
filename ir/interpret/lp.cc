// Sums of powers and maxima over windows, channels and lines: LpPool, GlobalLpPool, GlobalMaxPool, MaxUnpool, LpNormalization, LRN,
// MeanVarianceNormalization, Hardmax, Det.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/doubles.h"
#include "octavo/ir/interpret/window.h"

namespace octavo::ir::interpret {

namespace {

// The p-th root of the sum of the p-th powers of what `each` visits.
template <typename F>
double Norm(int64_t p, F each) {
  double sum = 0;
  each([&](double v) {
    sum += p == 1 ? std::fabs(v) : p == 2 ? v * v : std::pow(std::fabs(v), static_cast<double>(p));
  });
  return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1.0 / static_cast<double>(p));
}

Result<int64_t> PowerOf(const Call& call) {
  const int64_t p = call.Int("p", 2);
  if (p < 1) return Fail("p is {}", p);
  return p;
}

Status LpPool(Call& call) {
  const DType type = call.T(0).dtype();
  OCTAVO_TRY(const int64_t p, PowerOf(call));
  OCTAVO_TRY(const Window w,
             MakeWindow(call, call.T(0).shape(), call.node.attrs.Ints("kernel_shape"), call.Int("ceil_mode", 0) != 0));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  Shape shape = {x.shape()[0], x.shape()[1]};
  shape.insert(shape.end(), w.out.begin(), w.out.end());
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  WindowWalker walker(w);
  for (int64_t i = 0; i < y.size(); ++i) {
    const double* in = In(x) + i / w.out_size * w.in_size;
    Out(y)[i] =
        Norm(p, [&](auto visit) { walker.ForInside(i % w.out_size, [&](int64_t, int64_t at) { visit(in[at]); }); });
  }
  return ReturnAs(call, y, type);
}

// reduce(first element, count) of each channel.
template <typename F>
Status GlobalPool(Call& call, F reduce) {
  if (call.T(0).rank() < 3) return Fail("the operand must have rank 3 or more");
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  Shape shape = x.shape();
  std::fill(shape.begin() + 2, shape.end(), int64_t{1});
  const int64_t n = Count(x.shape(), 2, x.shape().size());
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  for (int64_t i = 0; i < y.size(); ++i) Out(y)[i] = reduce(In(x) + i * n, n);
  return ReturnAs(call, y, call.T(0).dtype());
}

Status GlobalLpPool(Call& call) {
  OCTAVO_TRY(const int64_t p, PowerOf(call));
  return GlobalPool(
      call, [p](const double* x, int64_t n) { return Norm(p, [&](auto visit) { std::for_each(x, x + n, visit); }); });
}

Status GlobalMaxPool(Call& call) {
  return GlobalPool(call, [](const double* x, int64_t n) {
    double best = -INFINITY;
    for (int64_t i = 0; i < n; ++i) best = x[i] > best || x[i] != x[i] ? x[i] : best;
    return best;
  });
}

// The size that pooling made these positions of.
Result<Shape> UnpooledShape(const Call& call) {
  const Shape& xs = call.T(0).shape();
  const size_t n = xs.size() - 2;
  const std::vector<int64_t> kernel = call.node.attrs.Ints("kernel_shape");
  if (kernel.size() != n) return Fail("a kernel of {} dims for {} spatial dims", kernel.size(), n);
  OCTAVO_TRY(const auto strides, WindowAttribute(call, "strides", n, 1, 1));
  OCTAVO_TRY(const auto pads, WindowAttribute(call, "pads", 2 * n, 0, 0));
  Shape shape = xs;
  for (size_t d = 0; d < n; ++d) {
    if (kernel[d] < 1 || kernel[d] > (int64_t{1} << 31) || xs[d + 2] > (int64_t{1} << 31))
      return Fail("kernel {} is not possible", ToString(kernel));
    shape[d + 2] = (xs[d + 2] - 1) * strides[d] + kernel[d] - pads[d] - pads[n + d];
  }
  return shape;
}

Status MaxUnpool(Call& call) {
  const Tensor& x = call.T(0);
  if (x.rank() < 3 || call.T(1).shape() != x.shape())
    return Fail("operand and indices must have equal shapes of rank 3 or more");
  OCTAVO_TRY(const Shape pooled, UnpooledShape(call));
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, pooled));
  Shape shape = pooled;
  if (call.Has(2)) {
    OCTAVO_TRY(shape, IntsOf(call.T(2), "output_shape"));
  }
  if (shape.size() != x.shape().size())
    return Fail("output_shape {} has another rank than the operand", ToString(shape));
  OCTAVO_TRY(const auto indices, IntsOf(call.T(1), "the indices"));
  OCTAVO_TRY(Tensor y, AllocZeros(x.dtype(), shape));
  // The indices count elements of the tensor that was pooled, which stands in the first corner of the result.
  const auto from = StridesOf(pooled), to = StridesOf(shape);
  const int64_t elements = ElementCount(pooled);
  OCTAVO_TRY_STATUS(ForSizes(x.dtype(), [&]<typename T>() -> Status {
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t index = indices[static_cast<size_t>(i)];
      if (index < 0 || index >= elements) return Fail("index {} is outside {} elements", index, elements);
      int64_t at = 0;
      bool inside = true;
      for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t place = index / from[d] % pooled[d];
        inside = inside && place < shape[d];
        at += place * to[d];
      }
      if (inside) MutablePtr<T>(y)[at] = Ptr<T>(x)[i];
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

// --- lines along an axis ---------------------------------------------------------------------------------------

// f(first element of the line, of the result's line, elements, step)
template <typename F>
Status AlongAxis(Call& call, int64_t default_axis, F f) {
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", default_axis), call.T(0).rank()));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, x.shape()));
  const auto a = static_cast<size_t>(axis);
  const int64_t n = x.shape()[a], step = Count(x.shape(), a + 1, x.shape().size());
  for (int64_t line = 0; n > 0 && line < x.size() / n; ++line) {
    const int64_t first = line / step * n * step + line % step;
    f(In(x) + first, Out(y) + first, n, step);
  }
  return ReturnAs(call, y, call.T(0).dtype());
}

Status LpNormalization(Call& call) {
  OCTAVO_TRY(const int64_t p, PowerOf(call));
  return AlongAxis(call, -1, [p](const double* x, double* y, int64_t n, int64_t step) {
    const double norm = Norm(p, [&](auto visit) {
      for (int64_t i = 0; i < n; ++i) visit(x[i * step]);
    });
    for (int64_t i = 0; i < n; ++i) y[i * step] = norm == 0 ? 0 : x[i * step] / norm;
  });
}

Status Hardmax(Call& call) {
  return AlongAxis(call, -1, [](const double* x, double* y, int64_t n, int64_t step) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) best = x[i * step] > x[best * step] ? i : best;
    y[best * step] = 1;
  });
}

Status LocalResponse(Call& call) {
  const int64_t size = call.Int("size", 0);
  if (size < 1 || call.T(0).rank() < 2) return Fail("size must be 1 or more, the rank 2 or more");
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  const Shape& xs = x.shape();
  const int64_t channels = xs[1], inner = Count(xs, 2, xs.size()), before = (size - 1) / 2, after = size - 1 - before;
  const double alpha = call.Float("alpha", 1e-4f), beta = call.Float("beta", 0.75f), bias = call.Float("bias", 1.0f);
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, xs));
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t c = i / inner % channels;
    double sum = 0;
    for (int64_t k = std::max(-before, -c); k <= std::min(after, channels - 1 - c); ++k) {
      const double v = In(x)[i + k * inner];
      sum += v * v;
    }
    Out(y)[i] = In(x)[i] / std::pow(bias + alpha / static_cast<double>(size) * sum, beta);
  }
  return ReturnAs(call, y, call.T(0).dtype());
}

Status MeanVariance(Call& call) {
  OCTAVO_TRY(const auto axes, Axes(call.node.attrs.Ints("axes", {0, 2, 3}), call.T(0).rank()));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  Shape kept = x.shape();
  for (const int64_t a : axes) kept[static_cast<size_t>(a)] = 1;
  const auto strides = StridesOf(x.shape()), group_strides = StridesOf(kept);
  std::vector<double> sum = WorkVector<double>(ElementCount(kept)), squares = sum;
  const auto group = [&](int64_t i) {
    int64_t at = 0;
    for (size_t d = 0; d < kept.size(); ++d) at += kept[d] == 1 ? 0 : i / strides[d] % kept[d] * group_strides[d];
    return static_cast<size_t>(at);
  };
  const double count = sum.empty() ? 1 : static_cast<double>(x.size()) / static_cast<double>(sum.size());
  for (int64_t i = 0; i < x.size(); ++i) sum[group(i)] += In(x)[i] / count;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double d = In(x)[i] - sum[group(i)];
    squares[group(i)] += d * d / count;
  }
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, x.shape()));
  // The function that ONNX gives it divides by the deviation and 1e-9.
  for (int64_t i = 0; i < x.size(); ++i) Out(y)[i] = (In(x)[i] - sum[group(i)]) / (std::sqrt(squares[group(i)]) + 1e-9);
  return ReturnAs(call, y, call.T(0).dtype());
}

// By Gauss, with the largest pivot of each column.
double Determinant(std::vector<double>& m, size_t n) {
  double det = 1;
  for (size_t c = 0; c < n; ++c) {
    size_t best = c;
    for (size_t r = c + 1; r < n; ++r) best = std::fabs(m[r * n + c]) > std::fabs(m[best * n + c]) ? r : best;
    if (m[best * n + c] == 0) return 0;
    if (best != c) {
      std::swap_ranges(m.begin() + static_cast<int64_t>(c * n), m.begin() + static_cast<int64_t>(c * n + n),
                       m.begin() + static_cast<int64_t>(best * n));
      det = -det;
    }
    det *= m[c * n + c];
    for (size_t r = c + 1; r < n; ++r) {
      const double factor = m[r * n + c] / m[c * n + c];
      for (size_t k = c; k < n; ++k) m[r * n + k] -= factor * m[c * n + k];
    }
  }
  return det;
}

Status Det(Call& call) {
  const Shape& xs = call.T(0).shape();
  if (xs.size() < 2 || xs.back() != xs[xs.size() - 2]) return Fail("the operand must be square matrices");
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  const int64_t n = xs.back();
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, Shape(xs.begin(), xs.end() - 2)));
  std::vector<double> m = WorkVector<double>(n * n);
  for (int64_t i = 0; i < y.size(); ++i) {
    std::copy_n(In(x) + i * n * n, n * n, m.begin());
    Out(y)[i] = Determinant(m, static_cast<size_t>(n));
  }
  return ReturnAs(call, y, call.T(0).dtype());
}

}  // namespace

void RegisterLp(Table& t) {
  t.Set(Op::kLpPool, LpPool);
  t.Set(Op::kGlobalLpPool, GlobalLpPool);
  t.Set(Op::kGlobalMaxPool, GlobalMaxPool);
  t.Set(Op::kMaxUnpool, MaxUnpool);
  t.Set(Op::kLpNormalization, LpNormalization);
  t.Set(Op::kHardmax, Hardmax);
  t.Set(Op::kLRN, LocalResponse);
  t.Set(Op::kMeanVarianceNormalization, MeanVariance);
  t.Set(Op::kDet, Det);
}

}  // namespace octavo::ir::interpret
