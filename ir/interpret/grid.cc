// GridSample and AffineGrid.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/doubles.h"
#include "octavo/ir/names.h"

namespace octavo::ir::interpret {

namespace {

enum class Mode : uint8_t { kNearest, kLinear, kCubic };
enum class Padding : uint8_t { kZeros, kBorder, kReflection };

struct Sampler {
  Mode mode = Mode::kLinear;
  Padding padding = Padding::kZeros;
  bool align = false;
  std::vector<int64_t> sizes;

  double Low() const { return align ? 0.0 : -0.5; }
  double High(size_t d) const { return static_cast<double>(sizes[d]) + (align ? -1.0 : -0.5); }
};

// Thrown back at both borders until it lies between them.
double Reflect(double x, double low, double high) {
  const double range = high - low;
  if (!std::isfinite(x) || range <= 0) return low;
  if (x >= low && x <= high) return x;
  const double distance = x < low ? low - x : x - high;
  const bool odd = std::fmod(std::floor(distance / range), 2.0) != 0;
  const double rest = std::fmod(distance, range);
  return (x < low) != odd ? low + rest : high - rest;
}

// The same place of the mirrored picture, near the picture: reflections repeat after twice its size.
double Period(double x, double low, double high) {
  const double period = 2 * (high - low);
  return period > 0 ? x - std::floor((x - low) / period) * period : low;
}

// From -1..1 to elements, then padded; cubic pads the elements around the point instead, as PyTorch and ONNX Runtime do. Never NaN, and
// near the picture, so that it can be an index.
double Coordinate(const Sampler& s, size_t d, double x) {
  const auto size = static_cast<double>(s.sizes[d]);
  x = s.align ? (x + 1) / 2 * (size - 1) : ((x + 1) * size - 1) / 2;
  if (s.mode == Mode::kNearest && std::isfinite(x)) x = std::nearbyint(x);
  const bool cubic = s.mode == Mode::kCubic;
  if (s.padding == Padding::kReflection) {
    const double low = s.Low(), high = s.High(d);
    return cubic && std::isfinite(x) ? Period(x, low, high) : Reflect(x, low, high);
  }
  if (!(x > -8)) x = -8;
  if (x > size + 8) x = size + 8;
  return s.padding == Padding::kBorder && !cubic ? std::clamp(x, 0.0, std::max(size - 1, 0.0)) : x;
}

// The element at index `i` of dim `d`, after padding; -1: a zero.
int64_t Inside(const Sampler& s, size_t d, int64_t i) {
  if (i >= 0 && i < s.sizes[d]) return i;
  if (s.padding == Padding::kZeros) return -1;
  if (s.padding == Padding::kReflection) i = static_cast<int64_t>(Reflect(static_cast<double>(i), s.Low(), s.High(d)));
  return std::clamp<int64_t>(i, 0, s.sizes[d] - 1);
}

// The weights of the elements around `x`; the index of the first is returned.
int64_t Weights(Mode mode, double x, double* w) {
  const double low = std::floor(x), t = x - low;
  const auto i = static_cast<int64_t>(low);
  if (mode == Mode::kNearest) return w[0] = 1, static_cast<int64_t>(std::nearbyint(x));
  if (mode == Mode::kLinear) return w[0] = 1 - t, w[1] = t, i;
  constexpr double a = -0.75;
  const auto far = [](double u) { return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a; };
  const auto near = [](double u) { return ((a + 2) * u - (a + 3)) * u * u + 1; };
  w[0] = far(t + 1), w[1] = near(t), w[2] = near(1 - t), w[3] = far(2 - t);
  return i - 1;
}

// The elements around one point along one dim, those outside of the picture and those of weight 0 left out.
struct Around {
  int count = 0;
  int64_t at[4] = {};
  double weight[4] = {};
};

Around AroundOf(const Sampler& s, size_t d, double x) {
  double w[4] = {};
  const int64_t first = Weights(s.mode, x, w);
  const int count = s.mode == Mode::kNearest ? 1 : s.mode == Mode::kLinear ? 2 : 4;
  Around a;
  for (int k = 0; k < count; ++k) {
    const int64_t i = Inside(s, d, first + k);
    if (i < 0 || w[k] == 0) continue;
    a.at[a.count] = i, a.weight[a.count++] = w[k];
  }
  return a;
}

// Sum over the elements around one point, dim by dim.
double Sum(const Sampler& s, const double* image, const std::vector<Around>& around, size_t d, int64_t flat) {
  const Around& a = around[d];
  double sum = 0;
  if (d + 1 == around.size()) {
    for (int k = 0; k < a.count; ++k) sum += a.weight[k] * image[flat * s.sizes[d] + a.at[k]];
    return sum;
  }
  for (int k = 0; k < a.count; ++k) sum += a.weight[k] * Sum(s, image, around, d + 1, flat * s.sizes[d] + a.at[k]);
  return sum;
}

Result<Sampler> SamplerOf(const Call& call) {
  Sampler s;
  const std::string mode = call.node.attrs.Str("mode", "linear"),
                    padding = call.node.attrs.Str("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    return Fail("mode {} is not linear, nearest or cubic", Quoted(mode));
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return Fail("padding_mode {} is not zeros, border or reflection", Quoted(padding));
  s.mode = mode == "linear" ? Mode::kLinear : mode == "nearest" ? Mode::kNearest : Mode::kCubic;
  s.padding = padding == "zeros" ? Padding::kZeros : padding == "border" ? Padding::kBorder : Padding::kReflection;
  s.align = call.Int("align_corners", 0) != 0;
  return s;
}

// x [N, C, d...], grid [N, o..., r] with the last dim of x first -> [N, C, o...]
Status GridSample(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape &xs = call.T(0).shape(), &gs = call.T(1).shape();
  const size_t r = xs.size() - 2;
  if (xs.size() < 3 || xs.size() > 10 || gs.size() != xs.size() || gs.back() != static_cast<int64_t>(r) ||
      gs[0] != xs[0])
    return Fail("the grid must be [batch, positions..., spatial dims] for an operand of rank 3 to 10");
  OCTAVO_TRY(Sampler s, SamplerOf(call));
  s.sizes.assign(xs.begin() + 2, xs.end());
  OCTAVO_TRY(const Tensor x, CastTo(call.T(0), DType::kF64));
  OCTAVO_TRY(const Tensor grid, Doubles(call.T(1)));
  Shape shape = {xs[0], xs[1]};
  shape.insert(shape.end(), gs.begin() + 1, gs.end() - 1);
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  const int64_t points = Count(gs, 1, gs.size() - 1), elements = Count(xs, 2, xs.size());
  std::vector<Around> around(r);  // of one point, for all channels
  for (int64_t i = 0; i < xs[0] * points && elements > 0; ++i) {
    for (size_t d = 0; d < r; ++d)
      around[d] =
          AroundOf(s, d, Coordinate(s, d, In(grid)[i * static_cast<int64_t>(r) + static_cast<int64_t>(r - 1 - d)]));
    for (int64_t c = 0; c < xs[1]; ++c) {
      const int64_t line = i / points * xs[1] + c;
      Out(y)[line * points + i % points] = Sum(s, In(x) + line * elements, around, 0, 0);
    }
  }
  return ReturnAs(call, y, type);
}

// theta [N, r, r+1], size (N, C, d...) -> [N, d..., r]
Status AffineGrid(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape& ts = call.T(0).shape();
  OCTAVO_TRY(const auto size, IntsOf(call.T(1), "the size"));
  const auto r = static_cast<int64_t>(size.size()) - 2;
  if (r < 1 || r > 3 || ts != Shape{size[0], r, r + 1})
    return Fail("theta {} does not fit a picture of {}", Describe(call.T(0)), ToString(size));
  const bool align = call.Int("align_corners", 0) != 0;
  OCTAVO_TRY(const Tensor theta, Doubles(call.T(0)));
  const Shape sizes(size.begin() + 2, size.end());
  Shape shape = {size[0]};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.push_back(r);
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  const auto strides = StridesOf(sizes);
  const int64_t points = ElementCount(sizes);
  for (int64_t i = 0; i < size[0] * points; ++i) {
    const double* m = In(theta) + i / points * r * (r + 1);
    for (int64_t row = 0; row < r; ++row) {
      double sum = m[row * (r + 1) + r];
      for (int64_t d = 0; d < r; ++d) {  // the last dim is x, the first of the vector
        const auto dim = static_cast<size_t>(r - 1 - d);
        const auto n = static_cast<double>(sizes[dim]), k = static_cast<double>(i % points / strides[dim] % sizes[dim]);
        const double place = align ? (n > 1 ? 2 * k / (n - 1) - 1 : -1.0) : (2 * k + 1) / n - 1;
        sum += m[row * (r + 1) + d] * place;
      }
      Out(y)[i * r + row] = sum;
    }
  }
  return ReturnAs(call, y, type);
}

}  // namespace

void RegisterGrid(Table& t) {
  t.Set(Op::kGridSample, GridSample);
  t.Set(Op::kAffineGrid, AffineGrid);
}

}  // namespace octavo::ir::interpret
