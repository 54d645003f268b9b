// Resize: nearest, linear, cubic, with antialias. Separable: each axis has a list of source positions and weights per
// output position (the definition is that of onnx/reference/ops/op_resize.py); computed in double, axis after axis.
#include "octavo/ir/interpret/resize.h"

#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

struct Options {
  std::string mode, coordinates, nearest;
  bool antialias = false, exclude_outside = false;
  double cubic = -0.75, extrapolation = 0.0;
};

struct AxisPlan {
  int64_t in = 1, out = 1;
  double scale = 1.0, roi_start = 0.0, roi_end = 1.0;
};

// Source positions and weights of one output position; `outside`: the extrapolation value instead.
struct Taps {
  std::vector<int64_t> at;
  std::vector<double> weights;
  MemoryCharge charge;
  bool outside = false;
};

double Source(const Options& o, const AxisPlan& a, double x) {
  const auto in = static_cast<double>(a.in);
  const double width = a.scale * in;
  if (o.coordinates == "align_corners") return width == 1.0 ? 0.0 : x * (in - 1) / (width - 1);
  if (o.coordinates == "asymmetric") return x / a.scale;
  if (o.coordinates == "tf_crop_and_resize") {
    const double part = (a.roi_end - a.roi_start) * (in - 1);
    return (width == 1.0 ? part / 2 : x * part / (width - 1)) + a.roi_start * (in - 1);
  }
  if (o.coordinates == "pytorch_half_pixel" && width == 1.0) return -0.5;
  const double half = (x + 0.5) / a.scale - 0.5;
  if (o.coordinates == "half_pixel_symmetric") return in / 2 * (1 - static_cast<double>(a.out) / width) + half;
  return half;
}

double CubicAt(double x, double c) {
  x = std::fabs(x);
  if (x <= 1) return ((c + 2) * x - (c + 3)) * x * x + 1;
  if (x < 2) return ((c * x - 5 * c) * x + 8 * c) * x - 4 * c;
  return 0.0;
}

// Weights of the source positions around one whose fraction is `ratio`, in (0, 1].
std::vector<double> Weights(const Options& o, double ratio, double scale, MemoryCharge* charge) {
  if (o.mode == "nearest") {
    bool left = false;
    if (ratio != 1.0) {
      if (o.nearest == "round_prefer_floor") left = ratio <= 0.5;
      if (o.nearest == "round_prefer_ceil") left = ratio < 0.5;
      if (o.nearest == "floor") left = true;
    }
    return left ? std::vector<double>{1, 0} : std::vector<double>{0, 1};
  }
  const double reach = o.mode == "linear" ? 1.0 : 2.0;
  const double s = o.antialias ? std::min(scale, 1.0) : 1.0;
  const auto first = static_cast<int64_t>(std::floor(-reach / s) + 1);
  const int64_t count = 2 - 2 * first;
  std::vector<double> w;
  *charge = MemoryCharge(2 * static_cast<size_t>(count) * sizeof(double));  // positions and weights
  double sum = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const double x = (static_cast<double>(i) - ratio) * s;
    w.push_back(o.mode == "linear" ? std::max(0.0, 1 - std::fabs(x)) : CubicAt(x, o.cubic));
    sum += w.back();
  }
  if (o.antialias) {
    for (double& v : w) v /= sum;
  }
  return w;
}

Taps TapsOf(const Options& o, const AxisPlan& a, int64_t position) {
  Taps t;
  const double x = Source(o, a, static_cast<double>(position));
  const bool inside = x >= 0 && x <= static_cast<double>(a.in - 1);  // false for NaN
  if ((o.coordinates == "tf_crop_and_resize" && !inside) || !(std::fabs(x) < 0x1p52)) {
    t.outside = true;
    return t;
  }
  const double below = std::floor(x);
  t.weights = Weights(o, x == below ? 1.0 : x - below, a.scale, &t.charge);
  const auto n = static_cast<int64_t>(t.weights.size());
  // The n nearest positions, the lower one first where two are equally near; never beyond n/2 outside.
  const int64_t first = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(x)) - n / 2, -(n / 2), a.in - n + n / 2);
  double kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    double& weight = t.weights[static_cast<size_t>(i)];
    if (o.exclude_outside && (first + i < 0 || first + i >= a.in)) weight = 0;
    kept += weight;
    t.at.push_back(std::clamp<int64_t>(first + i, 0, a.in - 1));
  }
  if (o.exclude_outside) {
    for (double& weight : t.weights) weight /= kept;
  }
  return t;
}

// Replaces one axis of x [outer, in, inner].
std::vector<double> ResizeAxis(const std::vector<double>& x, int64_t outer, int64_t inner, const Options& o,
                               const AxisPlan& a) {
  std::vector<double> y = WorkVector<double>(outer * a.out * inner);
  for (int64_t p = 0; p < a.out; ++p) {
    const Taps t = TapsOf(o, a, p);
    for (int64_t r = 0; r < outer; ++r) {
      double* to = y.data() + (r * a.out + p) * inner;
      std::fill_n(to, inner, t.outside ? o.extrapolation : 0.0);
      for (size_t k = 0; k < t.at.size(); ++k) {
        if (t.weights[k] == 0.0) continue;
        const double* from = x.data() + (r * a.in + t.at[k]) * inner;
        for (int64_t i = 0; i < inner; ++i) to[i] += t.weights[k] * from[i];
      }
    }
  }
  return y;
}

Result<Options> OptionsOf(const Call& call) {
  const Attrs& attrs = call.node.attrs;
  Options o{attrs.Str("mode", "nearest"),
            attrs.Str("coordinate_transformation_mode", "half_pixel"),
            attrs.Str("nearest_mode", "round_prefer_floor"),
            call.Int("antialias", 0) != 0,
            call.Int("exclude_outside", 0) != 0,
            call.Float("cubic_coeff_a", -0.75f),
            call.Float("extrapolation_value", 0.0f)};
  const auto one_of = [](const std::string& v, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), v) != list.end();
  };
  if (!one_of(o.mode, {"nearest", "linear", "cubic"})) return Fail("mode '{}' is not known", o.mode);
  if (!one_of(o.coordinates, {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                              "tf_crop_and_resize"})) {
    return Fail("coordinate_transformation_mode '{}' is not known", o.coordinates);
  }
  if (!one_of(o.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})) {
    return Fail("nearest_mode '{}' is not known", o.nearest);
  }
  return o;
}

// keep_aspect_ratio_policy: one scale for all resized axes, sizes rounded half up.
Status KeepAspect(const std::string& policy, const std::vector<int64_t>& axes, std::vector<AxisPlan>& plans) {
  if (policy == "stretch") return {};
  if (policy != "not_larger" && policy != "not_smaller")
    return Fail("keep_aspect_ratio_policy '{}' is not known", policy);
  double scale = policy == "not_larger" ? INFINITY : 0.0;
  for (int64_t a : axes) {
    const double s = plans[static_cast<size_t>(a)].scale;
    scale = policy == "not_larger" ? std::min(scale, s) : std::max(scale, s);
  }
  for (int64_t a : axes) {
    AxisPlan& p = plans[static_cast<size_t>(a)];
    p.scale = scale;
    p.out = static_cast<int64_t>(scale * static_cast<double>(p.in) + 0.5);
  }
  return {};
}

Result<std::vector<AxisPlan>> PlanAxes(const Call& call, const Shape& x) {
  const auto rank = static_cast<int64_t>(x.size());
  std::vector<AxisPlan> plans;
  for (int64_t d : x) plans.push_back({d, d});
  std::vector<int64_t> axes = call.node.attrs.Ints("axes");
  if (axes.empty()) {
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  }
  OCTAVO_TRY(axes, Axes(std::move(axes), rank, false));
  const bool has_scales = call.Has(2) && call.T(2).size() > 0, has_sizes = call.Has(3) && call.T(3).size() > 0;
  if (has_scales == has_sizes) return Fail("either scales or sizes must be given");
  const Tensor& wanted = call.T(has_scales ? 2 : 3);
  if (wanted.size() != static_cast<int64_t>(axes.size()))
    return Fail("{} sizes for {} axes", wanted.size(), axes.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    AxisPlan& p = plans[static_cast<size_t>(axes[k])];
    const double v = wanted.GetDouble(static_cast<int64_t>(k));
    if (!(v > 0) || v > 0x1p40) return Fail("a {} of {} is not possible", has_scales ? "scale" : "size", v);
    p.scale = has_scales ? v : v / static_cast<double>(p.in);
    // In float32, as ONNX's inference and its runtimes count.
    const double out = has_scales ? std::floor(static_cast<float>(v) * static_cast<float>(p.in)) : v;
    if (out > 0x1p40) return Fail("a size of {} is not possible", out);
    p.out = static_cast<int64_t>(out);
    if (call.Has(1) && call.T(1).size() == 2 * static_cast<int64_t>(axes.size())) {
      p.roi_start = call.T(1).GetDouble(static_cast<int64_t>(k));
      p.roi_end = call.T(1).GetDouble(static_cast<int64_t>(k + axes.size()));
    }
  }
  if (has_sizes) {
    OCTAVO_TRY_STATUS(KeepAspect(call.node.attrs.Str("keep_aspect_ratio_policy", "stretch"), axes, plans));
  }
  return plans;
}

Status Resize(Call& call) {
  const Tensor& x = call.T(0);
  if (!quant::IsFloat(x.dtype()) && !quant::IsInteger(x.dtype())) return BadType(x.dtype());
  OCTAVO_TRY(const Options o, OptionsOf(call));
  OCTAVO_TRY(const auto plans, PlanAxes(call, x.shape()));
  Shape shape = x.shape(), result;
  for (const AxisPlan& p : plans) result.push_back(p.out);
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, result));
  OCTAVO_TRY(const Tensor wide, CastTo(x, DType::kF64));
  const auto in = wide.as<double>();
  ChargeWork(in.size_bytes());
  std::vector<double> data(in.begin(), in.end());
  if (o.coordinates == "tf_crop_and_resize") {
    if (!call.Has(1) || call.T(1).size() == 0) return Fail("tf_crop_and_resize needs a roi");
  }
  for (size_t d = 0; d < plans.size() && ElementCount(result) > 0; ++d) {
    const AxisPlan& p = plans[d];
    const bool crops = o.coordinates == "tf_crop_and_resize" && (p.roi_start != 0.0 || p.roi_end != 1.0);
    if (p.in == p.out && p.scale == 1.0 && !crops) continue;
    if (p.in == 0) return Fail("axis {} is empty", d);
    Shape next = shape;
    next[d] = p.out;
    OCTAVO_TRY_STATUS(CheckShape(DType::kF64, next));
    data = ResizeAxis(data, Count(shape, 0, d), Count(shape, d + 1, shape.size()), o, p);
    shape = std::move(next);
  }
  if (ElementCount(result) == 0) data.clear();
  OCTAVO_TRY(Tensor y, CastTo(Tensor::Of<double>(DType::kF64, result, data), x.dtype()));
  call.Return(std::move(y));
  return {};
}

}  // namespace

Result<std::vector<ResizedAxis>> WeightsOfResize(const Graph& graph, const Node& node, const Shape& x,
                                                 std::span<const RtValue> in) {
  const Call call{graph, node, in, {}, {}};
  OCTAVO_TRY(const Options o, OptionsOf(call));
  OCTAVO_TRY(const auto plans, PlanAxes(call, x));
  if (o.coordinates == "tf_crop_and_resize") return Fail("a region of interest is cropped");
  std::vector<ResizedAxis> axes;
  for (const AxisPlan& p : plans) {
    ResizedAxis& axis = axes.emplace_back(ResizedAxis{.in = p.in, .out = p.out});
    if (p.in == p.out && p.scale == 1.0) continue;
    if (p.in == 0 || p.out > kMostResized) return Fail("an axis is empty or very long");
    axis.first.push_back(0);
    for (int64_t position = 0; position < p.out; ++position) {
      const Taps t = TapsOf(o, p, position);
      if (t.outside) return Fail("a position lies outside");
      for (size_t k = 0; k < t.at.size(); ++k) {
        if (t.weights[k] != 0.0) axis.from.push_back(t.at[k]), axis.weights.push_back(static_cast<float>(t.weights[k]));
      }
      axis.first.push_back(axis.from.size());
    }
  }
  return axes;
}

void RegisterResize(Table& t) { t.Set(Op::kResize, Resize); }

}  // namespace octavo::ir::interpret
