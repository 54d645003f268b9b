// ConvTranspose and Col2Im, which add windows to an image, and DeformConv, whose windows are bent.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/doubles.h"
#include "octavo/ir/interpret/sample.h"
#include "octavo/ir/interpret/window.h"

namespace octavo::ir::interpret {

namespace {

// --- ConvTranspose ---------------------------------------------------------------------------------------------

// One dim of the image that the windows are added to: its size and where the first window lies.
Status PlaceTransposed(const std::string& auto_pad, int64_t wanted, int64_t more, size_t d, Window& w) {
  const int64_t span = (w.kernel[d] - 1) * w.dilation[d] + 1;
  const int64_t full = w.stride[d] * (w.out[d] - 1) + more + span;
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (same && wanted < 0) wanted = w.out[d] * w.stride[d];
  if (wanted >= 0) {
    const int64_t total = std::max<int64_t>(0, full - wanted);
    w.before[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.in[d] = wanted;
  } else {
    if (auto_pad == "VALID") w.before[d] = w.after[d] = 0;
    w.in[d] = full - w.before[d] - w.after[d];
  }
  return w.in[d] < 1 ? Status(Fail("pads leave nothing of spatial axis {}", d)) : Status{};
}

// The window of the image: its `out` positions are those of the operand.
Result<Window> TransposedWindow(const Call& call) {
  const Shape &x = call.T(0).shape(), &k = call.T(1).shape();
  constexpr int64_t kMost = int64_t{1} << 31;
  const size_t n = x.size() - 2;
  Window w;
  w.out.assign(x.begin() + 2, x.end());
  w.kernel.assign(k.begin() + 2, k.end());
  if (call.node.attrs.Has("kernel_shape") && call.node.attrs.Ints("kernel_shape") != w.kernel)
    return Fail("kernel_shape disagrees with the weights");
  for (size_t d = 0; d < n; ++d) {
    if (w.kernel[d] < 1 || w.kernel[d] > kMost || w.out[d] > kMost)
      return Fail("kernel {} is not possible", ToString(w.kernel));
  }
  OCTAVO_TRY(w.stride, WindowAttribute(call, "strides", n, 1, 1));
  OCTAVO_TRY(w.dilation, WindowAttribute(call, "dilations", n, 1, 1));
  OCTAVO_TRY(const auto pads, WindowAttribute(call, "pads", 2 * n, 0, 0));
  OCTAVO_TRY(const auto more, WindowAttribute(call, "output_padding", n, 0, 0));
  OCTAVO_TRY(const auto wanted,
             WindowAttribute(call, "output_shape", n, -1, call.node.attrs.Ints("output_shape").empty() ? -1 : 1));
  w.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
  w.after.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  w.in.assign(n, 0);
  OCTAVO_TRY(const std::string auto_pad, AutoPadOf(call));
  for (size_t d = 0; d < n; ++d) OCTAVO_TRY_STATUS(PlaceTransposed(auto_pad, wanted[d], more[d], d, w));
  OCTAVO_TRY_STATUS(CountWindow(w));
  return w;
}

Status ConvTranspose(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape &xs = call.T(0).shape(), &ws = call.T(1).shape();
  const int64_t groups = call.Int("group", 1);
  if (xs.size() < 3 || ws.size() != xs.size()) return Fail("operand and weights must have equal ranks of 3 or more");
  if (groups < 1 || ws[0] != xs[1] || xs[1] % groups != 0)
    return Fail("{} channels do not make {} groups for weights {}", xs[1], groups, Describe(call.T(1)));
  OCTAVO_TRY(const Window w, TransposedWindow(call));
  const int64_t channels = xs[1] / groups, filters = ws[1];
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, Shape{filters, groups}));
  Shape shape = {xs[0], filters * groups};
  shape.insert(shape.end(), w.in.begin(), w.in.end());
  if (call.Has(2) && call.T(2).shape() != Shape{filters * groups})
    return Fail("the bias must have {} elements", filters * groups);
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(const Tensor k, Doubles(call.T(1)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  WindowWalker walker(w);
  for (int64_t i = 0; i < xs[0] * xs[1]; ++i) {
    const int64_t channel = i % xs[1], group = channel / std::max<int64_t>(channels, 1);
    for (int64_t f = 0; f < filters; ++f) {
      double* image = Out(y) + (i / xs[1] * filters * groups + group * filters + f) * w.in_size;
      const double* kernel = In(k) + (channel * filters + f) * w.kernel_size;
      for (int64_t o = 0; o < w.out_size; ++o) {
        const double v = In(x)[i * w.out_size + o];
        walker.ForInside(o, [&](int64_t p, int64_t at) { image[at] += v * kernel[p]; });
      }
    }
  }
  if (call.Has(2)) {
    OCTAVO_TRY(const Tensor bias, Doubles(call.T(2)));
    for (int64_t i = 0; i < y.size(); ++i) Out(y)[i] += In(bias)[i / w.in_size % (filters * groups)];
  }
  return ReturnAs(call, y, type);
}

// --- Col2Im ----------------------------------------------------------------------------------------------------

// x [N, C * block, windows]
Status Col2Im(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape& xs = call.T(0).shape();
  if (xs.size() != 3) return Fail("the operand must have rank 3");
  OCTAVO_TRY(const auto image, IntsOf(call.T(1), "the image shape"));
  OCTAVO_TRY(const auto block, IntsOf(call.T(2), "the block shape"));
  if (image.size() != block.size() || image.empty() || image.size() > 16)
    return Fail("image and block must have equal ranks of 1 to 16");
  for (const int64_t v : image) {
    if (v < 1) return Fail("the image is {}", ToString(image));
  }
  Shape padded = {1, 1};
  padded.insert(padded.end(), image.begin(), image.end());
  OCTAVO_TRY(const Window w, MakeWindow(call, padded, block, false));
  if (xs[1] % w.kernel_size != 0 || xs[2] != w.out_size)
    return Fail("the operand is not made of {} windows of {}", w.out_size, ToString(block));
  const int64_t channels = xs[1] / w.kernel_size;
  padded[0] = xs[0], padded[1] = channels;
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, padded));
  WindowWalker walker(w);
  for (int64_t i = 0; i < xs[0] * channels; ++i) {
    for (int64_t o = 0; o < w.out_size; ++o) {
      walker.ForInside(o, [&](int64_t p, int64_t at) {
        Out(y)[i * w.in_size + at] += In(x)[(i * w.kernel_size + p) * w.out_size + o];
      });
    }
  }
  return ReturnAs(call, y, type);
}

// --- DeformConv ------------------------------------------------------------------------------------------------

struct Bent {
  Window w;
  int64_t batch = 0, channels = 0, filters = 0, groups = 1, offset_groups = 1;
  Tensor x, weight, offset, bias, mask;
};

Result<Bent> PlanBent(const Call& call) {
  Bent p;
  const Shape &xs = call.T(0).shape(), &ws = call.T(1).shape();
  if (xs.size() < 3 || xs.size() > 10 || ws.size() != xs.size())
    return Fail("operand and weights must have equal ranks of 3 to 10");
  OCTAVO_TRY(p.w, MakeWindow(call, xs, std::vector<int64_t>(ws.begin() + 2, ws.end()), false));
  p.batch = xs[0], p.channels = xs[1], p.filters = ws[0];
  p.groups = call.Int("group", 1), p.offset_groups = call.Int("offset_group", 1);
  if (p.groups < 1 || p.offset_groups < 1 || p.channels < 1 || p.channels % p.groups != 0 ||
      p.filters % p.groups != 0 || p.channels % p.offset_groups != 0 || ws[1] != p.channels / p.groups) {
    return Fail("{} channels and {} filters do not make {} groups and {} groups of offsets", p.channels, p.filters,
                p.groups, p.offset_groups);
  }
  Shape expected = {p.batch, p.offset_groups * p.w.kernel_size};
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, Shape{p.offset_groups, p.w.kernel_size, 16}));
  expected.insert(expected.end(), p.w.out.begin(), p.w.out.end());
  if (call.Has(4) && call.T(4).shape() != expected)
    return Fail("the mask is {}, expected {}", Describe(call.T(4)), ToString(expected));
  expected[1] *= static_cast<int64_t>(p.w.dims());
  if (call.T(2).shape() != expected)
    return Fail("the offsets are {}, expected {}", Describe(call.T(2)), ToString(expected));
  if (call.Has(3) && call.T(3).shape() != Shape{p.filters}) return Fail("the bias must have {} elements", p.filters);
  OCTAVO_TRY(p.x, Doubles(call.T(0)));
  OCTAVO_TRY(p.weight, Doubles(call.T(1)));
  OCTAVO_TRY(p.offset, Doubles(call.T(2)));
  if (call.Has(3)) {
    OCTAVO_TRY(p.bias, Doubles(call.T(3)));
  }
  if (call.Has(4)) {
    OCTAVO_TRY(p.mask, Doubles(call.T(4)));
  }
  return p;
}

// What the windows read: [channels, kernel positions, out positions] of one picture.
void UnfoldBent(const Bent& p, int64_t b, std::vector<double>& columns) {
  const Window& w = p.w;
  const size_t n = w.dims();
  std::vector<double> at(n);
  const std::vector<int64_t> kernel_strides = StridesOf(w.kernel), out_strides = StridesOf(w.out);
  for (int64_t c = 0; c < p.channels; ++c) {
    const int64_t group = b * p.offset_groups + c / (p.channels / p.offset_groups);
    const double* image = In(p.x) + (b * p.channels + c) * w.in_size;
    for (int64_t k = 0; k < w.kernel_size; ++k) {
      const int64_t row = group * w.kernel_size + k;
      for (int64_t o = 0; o < w.out_size; ++o) {
        for (size_t d = 0; d < n; ++d) {
          const int64_t straight = o / out_strides[d] % w.out[d] * w.stride[d] - w.before[d] +
                                   k / kernel_strides[d] % w.kernel[d] * w.dilation[d];
          at[d] = static_cast<double>(straight) +
                  In(p.offset)[(row * static_cast<int64_t>(n) + static_cast<int64_t>(d)) * w.out_size + o];
        }
        const double v = SampleLinear(image, w.in, at);
        columns[static_cast<size_t>((c * w.kernel_size + k) * w.out_size + o)] =
            p.mask.defined() ? v * In(p.mask)[row * w.out_size + o] : v;
      }
    }
  }
}

Status DeformConv(Call& call) {
  const DType type = call.T(0).dtype();
  OCTAVO_TRY(const Bent p, PlanBent(call));
  Shape shape = {p.batch, p.filters};
  shape.insert(shape.end(), p.w.out.begin(), p.w.out.end());
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  const int64_t depth = p.channels / p.groups * p.w.kernel_size, n = p.w.out_size;
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, Shape{p.channels, p.w.kernel_size, n}));
  std::vector<double> columns = WorkVector<double>(p.channels * p.w.kernel_size * n);
  for (int64_t b = 0; b < p.batch; ++b) {
    UnfoldBent(p, b, columns);
    for (int64_t f = 0; f < p.filters; ++f) {
      const int64_t group = f / (p.filters / p.groups);
      for (int64_t o = 0; o < n; ++o) {
        double sum = p.bias.defined() ? In(p.bias)[f] : 0.0;
        for (int64_t i = 0; i < depth; ++i)
          sum += In(p.weight)[f * depth + i] * columns[static_cast<size_t>((group * depth + i) * n + o)];
        Out(y)[(b * p.filters + f) * n + o] = sum;
      }
    }
  }
  return ReturnAs(call, y, type);
}

}  // namespace

void RegisterUnfold(Table& t) {
  t.Set(Op::kConvTranspose, ConvTranspose);
  t.Set(Op::kCol2Im, Col2Im);
  t.Set(Op::kDeformConv, DeformConv);
}

}  // namespace octavo::ir::interpret
