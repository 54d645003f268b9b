// Rules of convolutions, pooling and the norms with statistics outputs.
#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;
  std::string auto_pad;
  bool ceil = false;
};

// Products of two numbers below this do not overflow.
constexpr int kMaxWindow = 1 << 30;

Result<Window> ReadWindow(const Inferrer& c, size_t spatial, std::vector<int64_t> kernel) {
  const Attrs& attrs = c.node().attrs;
  Window w;
  w.kernel = attrs.Ints("kernel_shape", std::move(kernel));
  w.strides = attrs.Ints("strides");
  w.dilations = attrs.Ints("dilations");
  w.pads = attrs.Ints("pads");
  w.auto_pad = attrs.Str("auto_pad", "NOTSET");
  if (w.strides.empty()) w.strides.assign(spatial, 1);
  if (w.dilations.empty()) w.dilations.assign(spatial, 1);
  if (w.pads.empty()) w.pads.assign(2 * spatial, 0);
  const Op op = c.node().op;  // a convolution has no such attribute
  w.ceil = (op == Op::kAveragePool || op == Op::kMaxPool || op == Op::kLpPool) && attrs.Int("ceil_mode", 0) != 0;
  if (w.kernel.size() != spatial || w.strides.size() != spatial || w.dilations.size() != spatial ||
      w.pads.size() != 2 * spatial) {
    return c.Refuse("kernel_shape, strides, dilations or pads do not fit {} spatial dims", spatial);
  }
  for (const auto& [list, least] :
       {std::pair{&w.strides, 1}, {&w.dilations, 1}, {&w.kernel, 1}, {&w.pads, -kMaxWindow}}) {
    for (const int64_t v : *list) {
      if (v < least || v > kMaxWindow) return c.Refuse("kernel_shape, strides, dilations or pads hold {}", v);
    }
  }
  return w;
}

Dim WindowCount(const Window& w, size_t i, size_t spatial, const Dim& size) {
  const Dim stride(w.strides[i]);
  if (w.auto_pad == "SAME_UPPER" || w.auto_pad == "SAME_LOWER") {
    if (size.is_number()) return Dim(CeilDiv(size.number(), w.strides[i]));
    return Quotient(size + stride - Dim(1), stride);
  }
  const int64_t reach = w.dilations[i] * (w.kernel[i] - 1) + 1;
  const int64_t pads = w.auto_pad == "VALID" ? 0 : w.pads[i] + w.pads[spatial + i];
  const Dim span = size + Dim(pads - reach);
  if (!span.is_number()) {
    // Without pads no window starts behind the end where it is as long as its stride.
    const bool rounds_up = w.ceil && pads == 0 && w.strides[i] <= reach;
    if (w.ceil && !rounds_up) return ExactDiv(span, stride) + Dim(1);
    return Quotient(rounds_up ? span + stride - Dim(1) : span, stride) + Dim(1);
  }
  if (span.number() < 0) return Dim();
  if (!w.ceil) return Dim(span.number() / w.strides[i] + 1);
  int64_t count = CeilDiv(span.number(), w.strides[i]) + 1;
  // ONNX: a window that would start in the right padding is left out.
  const Dim start = Dim(count - 1) * stride - size;
  if (start.is_number() && start.number() >= (w.auto_pad == "VALID" ? 0 : w.pads[i])) --count;
  return Dim(count);
}

// The weight is [filters, channels of a group, ...].
Status CheckGroups(const Inferrer& c, const Dim& channels, const SymShape& w) {
  const int64_t groups = c.node().attrs.Int("group", 1);
  const Dim &filters = w[0], &of_group = w[1];
  if (groups < 1) return c.Refuse("group is {}", groups);
  if (filters.is_number() && (filters.number() < groups || filters.number() % groups != 0)) {
    return c.Refuse("{} filters do not make {} groups", filters.number(), groups);
  }
  if (channels.is_number() && of_group.is_number() &&
      (channels.number() % groups != 0 || channels.number() / groups != of_group.number())) {
    return c.Refuse("{} channels do not make {} groups of {}", channels.number(), groups, of_group.number());
  }
  return {};
}

Status Convolve(Inferrer& c, size_t weight_input, DType dtype) {
  const SymShape* x = c.ShapeOf(0);
  const SymShape* w = c.ShapeOf(weight_input);
  c.Set(0, dtype, std::nullopt);
  if (x == nullptr || w == nullptr) return {};
  if (x->size() < 3 || w->size() != x->size()) {
    return c.Refuse("input {} and weight {} do not fit", ToString(*x), ToString(*w));
  }
  OCTAVO_TRY_STATUS(CheckGroups(c, (*x)[1], *w));
  const size_t spatial = x->size() - 2;
  SymShape out(x->size());
  out[0] = (*x)[0];
  out[1] = (*w)[0];
  std::vector<int64_t> kernel;
  for (size_t i = 0; i < spatial && (*w)[2 + i].is_number(); ++i) kernel.push_back((*w)[2 + i].number());
  if (kernel.size() == spatial || c.node().attrs.Has("kernel_shape")) {
    OCTAVO_TRY(const Window window, ReadWindow(c, spatial, std::move(kernel)));
    for (size_t i = 0; i < spatial; ++i) out[2 + i] = WindowCount(window, i, spatial, (*x)[2 + i]);
  }
  c.Set(0, dtype, std::move(out));
  return {};
}

Status Conv(Inferrer& c) { return Convolve(c, 1, c.DtypeOf(0)); }
Status ConvInteger(Inferrer& c) { return Convolve(c, 1, DType::kS32); }
Status QLinearConv(Inferrer& c) { return Convolve(c, 3, c.DtypeOf(7)); }

Status Pool(Inferrer& c) {
  const SymShape* x = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  c.Set(1, DType::kS64, std::nullopt);
  if (x == nullptr) return {};
  if (x->size() < 3) return c.Refuse("a tensor of rank {} has no spatial dims", x->size());
  const size_t spatial = x->size() - 2;
  OCTAVO_TRY(const Window window, ReadWindow(c, spatial, {}));
  SymShape out = *x;
  for (size_t i = 0; i < spatial; ++i) out[2 + i] = WindowCount(window, i, spatial, (*x)[2 + i]);
  c.Set(0, c.DtypeOf(0), out);
  c.Set(1, DType::kS64, std::move(out));
  return {};
}

Status GlobalPool(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  for (size_t i = 2; out && i < out->size(); ++i) (*out)[i] = Dim(1);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status BatchNorm(Inferrer& c) {
  c.Set(0, c.DtypeOf(0), c.CopyOf(0));
  c.Set(1, c.DtypeOf(3), c.CopyOf(3));
  c.Set(2, c.DtypeOf(4), c.CopyOf(4));
  return {};
}

Status LayerNorm(Inferrer& c) {
  MaybeShape statistics = c.CopyOf(0);
  if (statistics) {
    OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", -1), static_cast<int64_t>(statistics->size())));
    for (size_t i = static_cast<size_t>(axis); i < statistics->size(); ++i) (*statistics)[i] = Dim(1);
  }
  const DType stash = c.node().attrs.Has("stash_type") ? DTypeOfAttr(c, "stash_type") : DType::kF32;
  c.Set(0, c.DtypeOf(0), c.CopyOf(0));
  c.Set(1, stash, statistics);
  c.Set(2, stash, std::move(statistics));
  return {};
}

}  // namespace

Rule ConvRule(Op op) {
  switch (op) {
    case Op::kConv:
      return Conv;
    case Op::kConvInteger:
      return ConvInteger;
    case Op::kQLinearConv:
      return QLinearConv;
    case Op::kAveragePool:
    case Op::kMaxPool:
    case Op::kLpPool:
      return Pool;
    case Op::kGlobalAveragePool:
    case Op::kGlobalLpPool:
    case Op::kGlobalMaxPool:
      return GlobalPool;
    case Op::kBatchNormalization:
      return BatchNorm;
    case Op::kLayerNormalization:
      return LayerNorm;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
