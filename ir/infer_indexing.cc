// Rules of ops that pick, cut, pad or count elements.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// A bound that means the end of whatever dim. Exporters write the largest integers, tf2onnx this one.
constexpr int64_t kToTheEnd = 1'000'000'000;

// A bound of a slice as a place in 0..size, or unknown. `lowest`: where a backward slice may end (-1) or a forward one starts (0).
Dim SliceBound(const Dim& size, const Dim& bound, int64_t lowest, bool backward) {
  const int64_t past_end = backward ? 1 : 0;  // a backward slice starts at size - 1
  if (!bound.known()) return {};
  if (bound.is_number() && size.is_number()) {
    const int64_t n = size.number();
    const int64_t place = bound.number() < 0 ? bound.number() + n : bound.number();
    return Dim(std::clamp(place, lowest, std::max(n - past_end, lowest)));
  }
  if (bound.is_number()) {
    const int64_t b = bound.number();
    if (b >= kToTheEnd) return size - past_end;
    if (b <= -kToTheEnd) return Dim(lowest);
    if (b == 0) return Dim(0);
    const int64_t least = size.LowerBound().value_or(0);
    // The first or the last element is asked of tensors that have one; more must be proved to exist.
    if (b < 0) return b == -1 || least >= -b ? size + b : Dim();
    return b == 1 || least >= b ? bound : Dim();
  }
  if (ProvablyEqual(size + bound, Dim(0))) return Dim(0);  // the last n of n
  if (const auto low = bound.LowerBound(); !low || *low < 0) {
    // past + seq - seq and the like have cancelled by now; what may be negative counts from the end.
    return {};
  }
  // A symbolic bound of a table of numbered size is a size that must fit in it (positions 0..seq of 512): the run fails
  // elsewhere if it does not. Between symbols the order must be provable.
  if (size.is_number()) return bound;
  if (const auto room = (size - bound).LowerBound(); room && *room >= 0) return bound;
  if (const auto excess = (bound - size).LowerBound(); excess && *excess >= 0) return size - past_end;
  return {};
}

Status Slice(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr) return {};
  SymShape out = *from;
  const SymContents* starts = c.Contents(1);
  const SymContents* ends = c.Contents(2);
  auto axes = c.Numbers(3);
  const auto steps = c.Numbers(4);
  const SymShape* bounds = c.ShapeOf(1);
  const size_t count = starts != nullptr ? starts->size()
                       : ends != nullptr ? ends->size()
                       : bounds != nullptr && bounds->size() == 1 && (*bounds)[0].is_number()
                           ? static_cast<size_t>((*bounds)[0].number())
                           : SIZE_MAX;
  if ((c.Has(3) && !axes) || count == SIZE_MAX) {  // which axes are cut is not known: only the rank is
    c.Set(0, c.DtypeOf(0), SymShape(from->size()));
    return {};
  }
  if (!axes) {
    if (count > from->size()) return c.Refuse("it cuts {} axes of a tensor of rank {}", count, from->size());
    axes.emplace();
    for (size_t i = 0; i < count; ++i) axes->push_back(static_cast<int64_t>(i));
  }
  if (axes->size() != count || (starts && starts->size() != count) || (ends && ends->size() != count) ||
      (steps && steps->size() != count)) {
    return c.Refuse("its starts, ends, axes and steps differ in length");
  }
  for (size_t i = 0; i < count; ++i) {
    OCTAVO_TRY(const int64_t axis, c.Axis((*axes)[i], static_cast<int64_t>(from->size())));
    Dim& d = out[static_cast<size_t>(axis)];
    const bool known = starts != nullptr && ends != nullptr && (!c.Has(4) || steps);
    const int64_t step = steps ? (*steps)[i] : 1;
    if (step == 0 || step == INT64_MIN) return c.Refuse("a step is {}", step);
    d = known ? SliceLength(d, (*starts)[i], (*ends)[i], step) : Dim();
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Gather(Inferrer& c) {
  const SymShape* data = c.ShapeOf(0);
  const SymShape* indices = c.ShapeOf(1);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (data == nullptr || indices == nullptr) return {};
  OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(data->size())));
  SymShape out(data->begin(), data->begin() + axis);
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), data->begin() + axis + 1, data->end());
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status GatherElements(Inferrer& c) {
  c.Set(0, c.DtypeOf(0), c.CopyOf(1));
  return {};
}

Status GatherND(Inferrer& c) {
  const SymShape* data = c.ShapeOf(0);
  const SymShape* indices = c.ShapeOf(1);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (data == nullptr || indices == nullptr || indices->empty() || !indices->back().is_number()) return {};
  const int64_t batch = c.node().attrs.Int("batch_dims", 0);
  const int64_t depth = indices->back().number();
  const auto rank = static_cast<int64_t>(data->size());
  if (batch < 0 || depth < 1 || depth > rank || batch > rank - depth ||
      batch >= static_cast<int64_t>(indices->size())) {
    return c.Refuse("indices of depth {} with {} batch dims do not fit data of rank {}", depth, batch, rank);
  }
  SymShape out(indices->begin(), indices->end() - 1);
  for (int64_t i = 0; i < batch; ++i) Meet(out[static_cast<size_t>(i)], (*data)[static_cast<size_t>(i)]);
  out.insert(out.end(), data->begin() + batch + depth, data->end());
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Pad(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr) return {};
  const SymContents* pads = c.Contents(1);
  const auto axes = c.Numbers(3);
  SymShape out = *from;
  if (pads == nullptr || (c.Has(3) && !axes)) {
    c.Set(0, c.DtypeOf(0), SymShape(from->size()));
    return {};
  }
  const size_t count = axes ? axes->size() : from->size();
  if (pads->size() != 2 * count) return c.Refuse("it has {} pads for {} axes", pads->size(), count);
  for (size_t i = 0; i < count; ++i) {
    OCTAVO_TRY(const int64_t axis,
               c.Axis(axes ? (*axes)[i] : static_cast<int64_t>(i), static_cast<int64_t>(from->size())));
    Dim& d = out[static_cast<size_t>(axis)];
    d = d + (*pads)[i] + (*pads)[count + i];
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status OneHot(Inferrer& c) {
  const SymShape* indices = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(2), std::nullopt);
  if (indices == nullptr) return {};
  OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", -1), static_cast<int64_t>(indices->size()) + 1));
  const SymContents* depth = c.Contents(1);
  SymShape out = *indices;
  out.insert(out.begin() + axis, depth != nullptr && depth->size() == 1 ? (*depth)[0] : Dim());
  c.Set(0, c.DtypeOf(2), std::move(out));
  return {};
}

Status TopK(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (out) {
    OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", -1), static_cast<int64_t>(out->size())));
    const SymContents* k = c.Contents(1);
    (*out)[static_cast<size_t>(axis)] = k != nullptr && k->size() == 1 ? (*k)[0] : Dim();
  }
  c.Set(0, c.DtypeOf(0), out);
  c.Set(1, DType::kS64, std::move(out));
  return {};
}

Status NonZero(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  c.Set(0, DType::kS64, SymShape{from != nullptr ? Dim(static_cast<int64_t>(from->size())) : Dim(), Dim()});
  return {};
}

Status Compress(Inferrer& c) {
  MaybeShape out = SymShape{Dim()};
  if (c.node().attrs.Has("axis")) {
    out = c.CopyOf(0);
    if (out) {
      OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(out->size())));
      (*out)[static_cast<size_t>(axis)] = Dim();
    }
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Resize(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr) return {};
  SymShape out = *from;
  std::vector<int64_t> axes = c.node().attrs.Ints("axes");
  if (axes.empty()) {
    for (size_t i = 0; i < from->size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  const SymContents* sizes = c.Contents(3);
  const Tensor* scales = c.Constant(2);
  const bool use_scales = scales != nullptr && scales->size() == static_cast<int64_t>(axes.size());
  const bool stretch = c.node().attrs.Str("keep_aspect_ratio_policy", "stretch") == "stretch";
  for (size_t i = 0; i < axes.size(); ++i) {
    OCTAVO_TRY(const int64_t axis, c.Axis(axes[i], static_cast<int64_t>(from->size())));
    Dim& d = out[static_cast<size_t>(axis)];
    if (sizes != nullptr && sizes->size() == axes.size() && stretch) {
      d = (*sizes)[i];
    } else if (use_scales && scales->GetDouble(static_cast<int64_t>(i)) == 1.0) {
      // stays
    } else if (use_scales && d.is_number()) {
      // ONNX: floor(size * scale), in float32 as its runtimes compute it.
      const auto scale = static_cast<float>(scales->GetDouble(static_cast<int64_t>(i)));
      const float size = std::floor(static_cast<float>(d.number()) * scale);
      d = size >= 0 && size < 0x1p62f ? Dim(static_cast<int64_t>(size)) : Dim();
    } else {
      d = Dim();
    }
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status SpaceOrDepth(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (from == nullptr) return {};
  const int64_t block = c.node().attrs.Int("blocksize", 1);
  if (from->size() != 4 || block < 1) return c.Refuse("it needs a tensor of rank 4 and a positive blocksize");
  const SymShape& s = *from;
  const Dim b(block);
  if (c.node().op == Op::kSpaceToDepth) {
    c.Set(0, c.DtypeOf(0), SymShape{s[0], s[1] * b * b, ExactDiv(s[2], b), ExactDiv(s[3], b)});
  } else {
    c.Set(0, c.DtypeOf(0), SymShape{s[0], ExactDiv(s[1], b * b), s[2] * b, s[3] * b});
  }
  return {};
}

}  // namespace

Dim SliceLength(const Dim& size, const Dim& start, const Dim& end, int64_t step) {
  if (size.is_number() && size.number() <= 0) return Dim(0);
  const bool backward = step < 0;
  const Dim from = SliceBound(size, start, 0, backward);
  const Dim to = SliceBound(size, end, backward ? -1 : 0, backward);
  const Dim span = backward ? from - to : to - from;
  const Dim stride(backward ? -step : step);
  if (span.is_number()) return Dim(CeilDiv(span.number(), stride.number()));
  return span.LowerBound().value_or(-1) < 0 ? ExactDiv(span, stride) : Quotient(span + stride - Dim(1), stride);
}

Rule IndexingRule(Op op) {
  switch (op) {
    case Op::kCompress:
      return Compress;
    case Op::kDepthToSpace:
    case Op::kSpaceToDepth:
      return SpaceOrDepth;
    case Op::kGather:
      return Gather;
    case Op::kGatherElements:
      return GatherElements;
    case Op::kGatherND:
      return GatherND;
    case Op::kNonZero:
      return NonZero;
    case Op::kOneHot:
      return OneHot;
    case Op::kPad:
      return Pad;
    case Op::kResize:
      return Resize;
    case Op::kSlice:
      return Slice;
    case Op::kTopK:
      return TopK;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
