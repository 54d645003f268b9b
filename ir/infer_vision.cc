// Rules of ops on pictures: pooling and convolutions that others do not share, samplers, regions.
#include <algorithm>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// A list attribute of `size` numbers within reach of sums; empty: not as it must be.
std::vector<int64_t> ListOf(const Inferrer& c, std::string_view name, size_t size, int64_t fallback) {
  std::vector<int64_t> v = c.node().attrs.Ints(name);
  if (v.empty()) v.assign(size, fallback);
  for (const int64_t e : v) {
    if (e < -(1 << 30) || e > 1 << 30) return {};
  }
  return v.size() == size ? v : std::vector<int64_t>{};
}

// Size of the image that windows are added to: one dim.
Dim TransposedSize(const std::string& auto_pad, const Dim& x, int64_t stride, const Dim& span, int64_t pads) {
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") return x * Dim(stride);
  return x * Dim(stride) + span + Dim(-stride - (auto_pad == "VALID" ? 0 : pads));
}

Status ConvTranspose(Inferrer& c) {
  const SymShape *x = c.ShapeOf(0), *w = c.ShapeOf(1);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (x == nullptr || w == nullptr) return {};
  if (x->size() < 3 || w->size() != x->size())
    return c.Refuse("input {} and weight {} do not fit", ToString(*x), ToString(*w));
  const size_t n = x->size() - 2;
  SymShape out(x->size());
  out[0] = (*x)[0];
  const int64_t groups = c.node().attrs.Int("group", 1);
  if (groups > 0) out[1] = (*w)[1] * Dim(groups);
  const auto wanted = c.node().attrs.Ints("output_shape");
  const auto strides = ListOf(c, "strides", n, 1), dilations = ListOf(c, "dilations", n, 1),
             pads = ListOf(c, "pads", 2 * n, 0);
  const auto more = ListOf(c, "output_padding", n, 0);
  const bool readable = !strides.empty() && !dilations.empty() && !pads.empty() && !more.empty();
  const std::string auto_pad = c.node().attrs.Str("auto_pad", "NOTSET");
  for (size_t d = 0; d < n; ++d) {
    const int64_t step = readable ? std::max(strides[d], dilations[d]) : 0;
    if (readable && more[d] > 0 && more[d] >= step) {
      return c.Refuse(
          "output_padding adds {} to spatial axis {}; it must be less than the larger of stride and dilation there, {}",
          more[d], d, step);
    }
    if (wanted.size() == n) {
      out[2 + d] = Dim(wanted[d]);
    } else if (readable && wanted.empty()) {
      const Dim span = ((*w)[2 + d] + Dim(-1)) * Dim(dilations[d]) + Dim(1 + more[d]);
      out[2 + d] = TransposedSize(auto_pad, (*x)[2 + d], strides[d], span, pads[d] + pads[n + d]);
    }
  }
  MaybeShape shape = std::move(out);
  ForgetNegative(shape);
  c.Set(0, c.DtypeOf(0), std::move(shape));
  return {};
}

// The offsets have the spatial dims of the result.
Status DeformConv(Inferrer& c) {
  const SymShape *w = c.ShapeOf(1), *offset = c.ShapeOf(2);
  MaybeShape out = c.CopyOf(0);
  if (out && out->size() < 3) return c.Refuse("a tensor of rank {} has no spatial dims", out->size());
  if (out) {
    (*out)[1] = w != nullptr && !w->empty() ? (*w)[0] : Dim();
    for (size_t d = 2; d < out->size(); ++d)
      (*out)[d] = offset != nullptr && offset->size() == out->size() ? (*offset)[d] : Dim();
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Col2Im(Inferrer& c) {
  const SymShape* x = c.ShapeOf(0);
  const auto image = c.Numbers(1), block = c.Numbers(2);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (x == nullptr || x->size() != 3 || !image) return {};
  SymShape out = {(*x)[0], Dim()};
  if (block) {
    Dim size(1);
    for (const int64_t b : *block) size = size * Dim(b);
    out[1] = ExactDiv((*x)[1], size);
  }
  for (const int64_t d : *image) out.emplace_back(d);
  MaybeShape shape = std::move(out);
  ForgetNegative(shape);
  c.Set(0, c.DtypeOf(0), std::move(shape));
  return {};
}

Status MaxUnpool(Inferrer& c) {
  const SymShape* x = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (x == nullptr || x->size() < 3) return {};
  const size_t n = x->size() - 2;
  SymShape out = *x;
  const auto kernel = c.node().attrs.Ints("kernel_shape");
  const auto strides = ListOf(c, "strides", n, 1), pads = ListOf(c, "pads", 2 * n, 0);
  const auto sizes = c.Numbers(2);
  for (size_t d = 0; d < n; ++d) {
    const bool known =
        !c.Has(2) && kernel.size() == n && !strides.empty() && !pads.empty() && kernel[d] > 0 && kernel[d] < 1 << 30;
    out[2 + d] = known ? (*x)[2 + d] * Dim(strides[d]) + Dim(kernel[d] - strides[d] - pads[d] - pads[n + d]) : Dim();
  }
  if (c.Has(2))
    out = sizes && sizes->size() == out.size() ? SymShape(sizes->begin(), sizes->end()) : SymShape(x->size());
  MaybeShape shape = std::move(out);
  ForgetNegative(shape);
  c.Set(0, c.DtypeOf(0), std::move(shape));
  return {};
}

// x [N, C, d...], grid [N, o..., r]
Status GridSample(Inferrer& c) {
  const SymShape *x = c.ShapeOf(0), *grid = c.ShapeOf(1);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (x == nullptr || grid == nullptr) return {};
  if (x->size() < 3 || grid->size() != x->size())
    return c.Refuse("the operand {} and the grid {} do not fit", ToString(*x), ToString(*grid));
  SymShape out = {(*x)[0], (*x)[1]};
  out.insert(out.end(), grid->begin() + 1, grid->end() - 1);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// theta, size (N, C, d...) -> [N, d..., r]
Status AffineGrid(Inferrer& c) {
  c.Set(0, c.DtypeOf(0), std::nullopt);
  const SymContents* size = c.Contents(1);
  if (size == nullptr || size->size() < 3) return {};
  SymShape out = {(*size)[0]};
  out.insert(out.end(), size->begin() + 2, size->end());
  out.emplace_back(static_cast<int64_t>(size->size() - 2));
  MaybeShape shape = std::move(out);
  ForgetNegative(shape);
  c.Set(0, c.DtypeOf(0), std::move(shape));
  return {};
}

// The operand's channels over regions of [height, width].
Status Regions(Inferrer& c, int64_t height, int64_t width) {
  const SymShape *x = c.ShapeOf(0), *rois = c.ShapeOf(1);
  SymShape out(4);
  if (x != nullptr && x->size() == 4) out[1] = (*x)[1];
  if (rois != nullptr && rois->size() == 2) out[0] = (*rois)[0];
  if (height > 0) out[2] = Dim(height);
  if (width > 0) out[3] = Dim(width);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}
Status RoiAlign(Inferrer& c) {
  return Regions(c, c.node().attrs.Int("output_height", 1), c.node().attrs.Int("output_width", 1));
}
Status MaxRoiPool(Inferrer& c) {
  const auto pooled = c.node().attrs.Ints("pooled_shape");
  return pooled.size() == 2 ? Regions(c, pooled[0], pooled[1]) : Regions(c, 0, 0);
}

Status NonMaxSuppression(Inferrer& c) {
  c.Set(0, DType::kS64, SymShape{Dim(), Dim(3)});
  return {};
}

Status Det(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (out && out->size() < 2) return c.Refuse("a tensor of rank {} holds no matrices", out->size());
  if (out) out->resize(out->size() - 2);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

}  // namespace

Rule VisionRule(Op op) {
  switch (op) {
    case Op::kConvTranspose:
      return ConvTranspose;
    case Op::kDeformConv:
      return DeformConv;
    case Op::kCol2Im:
      return Col2Im;
    case Op::kMaxUnpool:
      return MaxUnpool;
    case Op::kGridSample:
      return GridSample;
    case Op::kAffineGrid:
      return AffineGrid;
    case Op::kRoiAlign:
      return RoiAlign;
    case Op::kMaxRoiPool:
      return MaxRoiPool;
    case Op::kNonMaxSuppression:
      return NonMaxSuppression;
    case Op::kDet:
      return Det;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
