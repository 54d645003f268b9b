// Conv, ConvInteger, QLinearConv in any number of spatial dims: each group is a product of its weights and the matrix
// of its windows, in the order of products.h (channels, then kernel positions).
#include <algorithm>

#include "octavo/ir/interpret/products.h"
#include "octavo/ir/interpret/requantize.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/ir/interpret/window.h"

namespace octavo::ir::interpret {

namespace {

struct ConvPlan {
  Window window;
  int64_t batch = 0, groups = 1, channels = 0, filters = 0;  // channels and filters per group
  Shape result;
  int64_t depth() const { return channels * window.kernel_size; }
};

Result<ConvPlan> PlanConv(const Call& call, const Tensor& x, const Tensor& w) {
  ConvPlan p;
  if (x.rank() < 3 || w.rank() != x.rank()) return Fail("operand and weights must have equal ranks of 3 or more");
  std::vector<int64_t> kernel(w.shape().begin() + 2, w.shape().end());
  if (call.node.attrs.Has("kernel_shape") && call.node.attrs.Ints("kernel_shape") != kernel) {
    return Fail("kernel_shape disagrees with the weights");
  }
  p.groups = call.Int("group", 1);
  p.batch = x.shape()[0];
  p.channels = w.shape()[1];
  if (p.groups < 1 || p.groups > w.shape()[0] || w.shape()[0] % p.groups != 0 ||
      x.shape()[1] / p.groups != p.channels || x.shape()[1] % p.groups != 0) {
    return Fail("{} channels and {} filters do not make {} groups of {} channels", x.shape()[1], w.shape()[0], p.groups,
                p.channels);
  }
  p.filters = w.shape()[0] / p.groups;
  OCTAVO_TRY(p.window, MakeWindow(call, x.shape(), std::move(kernel), false));
  p.result = {p.batch, w.shape()[0]};
  p.result.insert(p.result.end(), p.window.out.begin(), p.window.out.end());
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, p.result));
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, Shape{p.channels, p.window.kernel_size, p.window.out_size}));
  return p;
}

// [channels * kernel positions, out positions]; outside the input: 0.
template <typename T>
void Unfold(const ConvPlan& p, const T* x, std::vector<T>& columns) {
  const Window& w = p.window;
  std::fill(columns.begin(), columns.end(), T(0));
  WindowWalker walker(w);
  for (int64_t o = 0; o < w.out_size; ++o) {
    walker.ForInside(o, [&](int64_t k, int64_t at) {
      for (int64_t c = 0; c < p.channels; ++c) {
        columns[static_cast<size_t>((c * w.kernel_size + k) * w.out_size + o)] = x[c * w.in_size + at];
      }
    });
  }
}

// y (zeroed) += weights x windows, by multiply(a, b, c, m, k, n).
template <typename T, typename R, typename F>
void Convolve(const ConvPlan& p, const T* x, const T* w, R* y, F multiply) {
  std::vector<T> columns = WorkVector<T>(p.depth() * p.window.out_size);
  for (int64_t i = 0; i < p.batch * p.groups; ++i) {
    Unfold(p, x + i * p.channels * p.window.in_size, columns);
    const T* filters = w + i % p.groups * p.filters * p.depth();
    multiply(filters, columns.data(), y + i * p.filters * p.window.out_size, p.filters, p.depth(), p.window.out_size);
  }
}

template <typename T>
void AddBias(const ConvPlan& p, const T* bias, T* y) {
  const int64_t all = p.groups * p.filters;
  for (int64_t i = 0; i < p.batch * all; ++i) {
    for (int64_t o = 0; o < p.window.out_size; ++o) *y = *y + bias[i % all], ++y;
  }
}

Status Conv(Call& call) {
  const DType type = call.T(0).dtype();
  if (!quant::IsComputedFloat(type)) return BadType(type);
  if (call.T(1).dtype() != type) return Fail("operand and weights have different element types");
  OCTAVO_TRY(const ConvPlan p, PlanConv(call, call.T(0), call.T(1)));
  const DType mid = type == DType::kF64 ? DType::kF64 : DType::kF32;
  OCTAVO_TRY(const Tensor x, CastTo(call.T(0), mid));
  OCTAVO_TRY(const Tensor w, CastTo(call.T(1), mid));
  Tensor bias;
  if (call.Has(2)) {
    if (call.T(2).size() != w.shape()[0]) return Fail("the bias must have {} elements", w.shape()[0]);
    OCTAVO_TRY(bias, CastTo(call.T(2), mid));
  }
  Tensor y = Tensor::Zeros(mid, p.result);
  if (mid == DType::kF64) {
    Convolve(p, Ptr<double>(x), Ptr<double>(w), MutablePtr<double>(y), MultiplyF64);
    if (bias.defined()) AddBias(p, Ptr<double>(bias), MutablePtr<double>(y));
  } else {
    Convolve(p, Ptr<float>(x), Ptr<float>(w), MutablePtr<float>(y), MultiplyF32);
    if (bias.defined()) AddBias(p, Ptr<float>(bias), MutablePtr<float>(y));
  }
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(std::move(y));
  return {};
}

// The exact integer convolution of operand less zero point; padding is the zero point.
Result<std::vector<int64_t>> ConvolveIntegers(const ConvPlan& p, const Tensor& x, const Tensor& x_zero, const Tensor& w,
                                              const Tensor& w_zero) {
  OCTAVO_TRY(const auto a, Centered(x, x_zero, -1));
  OCTAVO_TRY(const auto b, Centered(w, w_zero, 0));
  std::vector<int64_t> y = WorkVector<int64_t>(ElementCount(p.result));
  Convolve(p, a.data(), b.data(), y.data(), MultiplyS16Wide);
  return y;
}

Tensor Optional(const Call& call, size_t i) { return call.Has(i) ? call.T(i) : Tensor(); }

Status ConvInteger(Call& call) {
  OCTAVO_TRY(const ConvPlan p, PlanConv(call, call.T(0), call.T(1)));
  OCTAVO_TRY(const auto acc, ConvolveIntegers(p, call.T(0), Optional(call, 2), call.T(1), Optional(call, 3)));
  Tensor y = Tensor::Empty(DType::kS32, p.result);
  std::transform(acc.begin(), acc.end(), MutablePtr<int32_t>(y), [](int64_t v) { return static_cast<int32_t>(v); });
  call.Return(std::move(y));
  return {};
}

// x x_scale x_zero w w_scale w_zero y_scale y_zero [bias s32]; order of operations: requantize.h
Status QLinearConv(Call& call) {
  const Tensor &x = call.T(0), &w = call.T(3), &y_zero = call.T(7);
  OCTAVO_TRY(const ConvPlan p, PlanConv(call, x, w));
  if (!quant::IsInt8(y_zero.dtype())) return BadType(y_zero.dtype());
  const int64_t all = p.groups * p.filters;
  if (call.T(1).size() != 1 || call.T(6).size() != 1 || y_zero.size() != 1 ||
      (call.T(4).size() != 1 && call.T(4).size() != all)) {
    return Fail("scales must be one element, the weights' may be one per filter");
  }
  OCTAVO_TRY(auto acc, ConvolveIntegers(p, x, call.T(2), w, call.T(5)));
  if (call.Has(8)) {
    if (call.T(8).dtype() != DType::kS32 || call.T(8).size() != all) return Fail("the bias must be s32[{}]", all);
    AddBias(p, call.T(8).ToInts().data(), acc.data());
  }
  const std::vector<float> sw = call.T(4).ToFloats();
  const float sx = call.T(1).ToFloats()[0], sy = call.T(6).ToFloats()[0];
  const Requantizer requantize(y_zero);
  Tensor y = Tensor::Empty(y_zero.dtype(), p.result);
  auto* out = MutablePtr<uint8_t>(y);
  for (size_t i = 0; i < acc.size(); ++i) {
    const size_t filter = i / static_cast<size_t>(p.window.out_size) % static_cast<size_t>(all);
    out[i] = requantize(acc[i], sx * sw[sw.size() == 1 ? 0 : filter] / sy);
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterConv(Table& t) {
  t.Set(Op::kConv, Conv);
  t.Set(Op::kConvInteger, ConvInteger);
  t.Set(Op::kQLinearConv, QLinearConv);
}

}  // namespace octavo::ir::interpret
