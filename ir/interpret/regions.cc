// Boxes in pictures: RoiAlign, MaxRoiPool, NonMaxSuppression.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "octavo/ir/interpret/doubles.h"
#include "octavo/ir/interpret/indices.h"

namespace octavo::ir::interpret {

namespace {

// --- RoiAlign --------------------------------------------------------------------------------------------------

struct Aligned {
  int64_t out_h = 1, out_w = 1, ratio = 0;
  double scale = 1;
  bool half_pixel = true, max = false;
};

// The four elements around a point, and their weights; false: the point lies outside.
bool Corners(double y, double x, int64_t h, int64_t w, int64_t* at, double* weight) {
  if (!(y >= -1 && y <= static_cast<double>(h) && x >= -1 && x <= static_cast<double>(w)) || h < 1 || w < 1)
    return false;
  const auto place = [](double v, int64_t size, int64_t& low, int64_t& high) {
    v = std::max(v, 0.0);
    low = static_cast<int64_t>(v);
    high = low + 1;
    if (low >= size - 1) {
      low = high = size - 1;
      v = static_cast<double>(low);
    }
    return v - static_cast<double>(low);
  };
  int64_t y0, y1, x0, x1;
  const double ly = place(y, h, y0, y1), lx = place(x, w, x0, x1);
  at[0] = y0 * w + x0, at[1] = y0 * w + x1, at[2] = y1 * w + x0, at[3] = y1 * w + x1;
  weight[0] = (1 - ly) * (1 - lx), weight[1] = (1 - ly) * lx, weight[2] = ly * (1 - lx), weight[3] = ly * lx;
  return true;
}

// One region of one channel. "max" is that of ONNX Runtime: the largest weighted corner.
void AlignOne(const Aligned& p, const double* image, int64_t h, int64_t w, const double* roi, const int64_t* grid,
              double* y) {
  const double offset = p.half_pixel ? 0.5 : 0.0, left = roi[0] * p.scale - offset, top = roi[1] * p.scale - offset;
  double width = roi[2] * p.scale - offset - left, height = roi[3] * p.scale - offset - top;
  if (!p.half_pixel) width = std::max(width, 1.0), height = std::max(height, 1.0);
  const double bin_h = height / static_cast<double>(p.out_h), bin_w = width / static_cast<double>(p.out_w);
  const double count = static_cast<double>(std::max<int64_t>(grid[0] * grid[1], 1));
  for (int64_t o = 0; o < p.out_h * p.out_w; ++o) {
    double sum = 0;
    bool first = true;
    for (int64_t g = 0; g < grid[0] * grid[1]; ++g) {
      const double py = top + static_cast<double>(o / p.out_w) * bin_h +
                        (static_cast<double>(g / grid[1]) + 0.5) * bin_h / static_cast<double>(grid[0]);
      const double px = left + static_cast<double>(o % p.out_w) * bin_w +
                        (static_cast<double>(g % grid[1]) + 0.5) * bin_w / static_cast<double>(grid[1]);
      int64_t at[4] = {};
      double weight[4] = {};
      const bool inside = Corners(py, px, h, w, at, weight);
      for (int k = 0; k < 4; ++k) {
        const double v = inside ? weight[k] * image[at[k]] : 0.0;
        if (!p.max) {
          sum += v;
        } else if (first || v > sum) {
          sum = v, first = false;
        }
      }
    }
    y[o] = p.max ? sum : sum / count;
  }
}

// Points a bin, by height and width.
Status GridOf(const Aligned& p, const double* roi, int64_t* grid) {
  constexpr double kMost = 4096;
  for (int k = 0; k < 2; ++k) {
    double size = (roi[3 - k] - roi[1 - k]) * p.scale;
    if (!p.half_pixel) size = std::max(size, 1.0);
    const double points =
        p.ratio > 0 ? static_cast<double>(p.ratio) : std::ceil(size / static_cast<double>(k == 0 ? p.out_h : p.out_w));
    if (!(points <= kMost)) return Fail("a region needs {} points a bin, more than {}", points, kMost);
    grid[k] = points > 0 ? static_cast<int64_t>(points) : 0;
  }
  return {};
}

Status RoiAlign(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape& xs = call.T(0).shape();
  const int64_t regions = call.T(1).rank() == 2 ? call.T(1).shape()[0] : -1;
  if (xs.size() != 4 || regions < 0 || call.T(1).shape()[1] != 4 || call.T(2).shape() != Shape{regions})
    return Fail("the operand must be [N, C, H, W], the regions [n, 4], their pictures [n]");
  Aligned p;
  p.out_h = call.Int("output_height", 1), p.out_w = call.Int("output_width", 1),
  p.ratio = call.Int("sampling_ratio", 0);
  p.scale = call.Float("spatial_scale", 1.0f);
  p.half_pixel = call.node.attrs.Str("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  p.max = call.node.attrs.Str("mode", "avg") == "max";
  if (p.out_h < 1 || p.out_w < 1 || p.ratio < 0)
    return Fail("output_height, output_width or sampling_ratio is not possible");
  OCTAVO_TRY(const auto pictures, IndicesInto(call.T(2), xs[0]));
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(const Tensor rois, Doubles(call.T(1)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {regions, xs[1], p.out_h, p.out_w}));
  for (int64_t i = 0; i < regions; ++i) {
    int64_t grid[2] = {};
    OCTAVO_TRY_STATUS(GridOf(p, In(rois) + i * 4, grid));
    for (int64_t c = 0; c < xs[1]; ++c) {
      const double* image = In(x) + (pictures[static_cast<size_t>(i)] * xs[1] + c) * xs[2] * xs[3];
      AlignOne(p, image, xs[2], xs[3], In(rois) + i * 4, grid, Out(y) + (i * xs[1] + c) * p.out_h * p.out_w);
    }
  }
  return ReturnAs(call, y, type);
}

// --- MaxRoiPool ------------------------------------------------------------------------------------------------

// Elements [first, end) of one bin, within the picture.
void BinOf(double start, double end, int64_t bins, int64_t bin, int64_t size, int64_t& first, int64_t& last) {
  const double length = std::max(end - start + 1, 1.0) / static_cast<double>(bins), limit = static_cast<double>(size);
  first = static_cast<int64_t>(std::clamp(std::floor(static_cast<double>(bin) * length) + start, 0.0, limit));
  last = static_cast<int64_t>(std::clamp(std::ceil(static_cast<double>(bin + 1) * length) + start, 0.0, limit));
}

Status MaxRoiPool(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape& xs = call.T(0).shape();
  const auto pooled = call.node.attrs.Ints("pooled_shape");
  if (xs.size() != 4 || call.T(1).rank() != 2 || call.T(1).shape()[1] != 5 || pooled.size() != 2 || pooled[0] < 1 ||
      pooled[1] < 1)
    return Fail("the operand must be [N, C, H, W], the regions [n, 5], pooled_shape two sizes");
  const double scale = call.Float("spatial_scale", 1.0f);
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(const Tensor rois, Doubles(call.T(1)));
  const int64_t regions = call.T(1).shape()[0];
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {regions, xs[1], pooled[0], pooled[1]}));
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t bin = i % (pooled[0] * pooled[1]), line = i / (pooled[0] * pooled[1]);
    const double* roi = In(rois) + line / xs[1] * 5;
    if (!(roi[0] >= 0 && roi[0] < static_cast<double>(xs[0])))
      return Fail("a region of picture {}, which does not exist", roi[0]);
    double edge[4];
    for (int k = 0; k < 4; ++k) edge[k] = std::isfinite(roi[k + 1] * scale) ? std::round(roi[k + 1] * scale) : 0.0;
    int64_t top, bottom, left, right;
    BinOf(edge[1], edge[3], pooled[0], bin / pooled[1], xs[2], top, bottom);
    BinOf(edge[0], edge[2], pooled[1], bin % pooled[1], xs[3], left, right);
    const double* image = In(x) + (static_cast<int64_t>(roi[0]) * xs[1] + line % xs[1]) * xs[2] * xs[3];
    double best = top < bottom && left < right ? -INFINITY : 0;
    for (int64_t h = top; h < bottom; ++h) {
      for (int64_t w = left; w < right; ++w) best = std::max(best, image[h * xs[3] + w]);
    }
    Out(y)[i] = best;
  }
  return ReturnAs(call, y, type);
}

// --- NonMaxSuppression -----------------------------------------------------------------------------------------

struct Box {
  float y0, x0, y1, x1;
};

Box BoxOf(const float* b, bool center) {
  if (center) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

bool Overlaps(const Box& a, const Box& b, float threshold) {
  const float h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0), w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (!(h > 0 && w > 0)) return false;
  const float both = h * w, area_a = (a.y1 - a.y0) * (a.x1 - a.x0), area_b = (b.y1 - b.y0) * (b.x1 - b.x0);
  if (!(area_a > 0 && area_b > 0)) return false;
  return both / (area_a + area_b - both) > threshold;
}

Result<float> Threshold(const Call& call, size_t i, float fallback) {
  if (!call.Has(i)) return fallback;
  if (call.T(i).dtype() != DType::kF32 || call.T(i).size() != 1) return Fail("a threshold must be one f32");
  return call.T(i).as<float>()[0];
}

Status NonMaxSuppression(Call& call) {
  const Tensor &boxes = call.T(0), &scores = call.T(1);
  if (boxes.dtype() != DType::kF32 || scores.dtype() != DType::kF32) return BadType(boxes.dtype());
  if (boxes.rank() != 3 || scores.rank() != 3 || boxes.shape()[2] != 4 || boxes.shape()[0] != scores.shape()[0] ||
      boxes.shape()[1] != scores.shape()[2])
    return Fail("the boxes must be [batch, boxes, 4], the scores [batch, classes, boxes]");
  int64_t most = 0;
  if (call.Has(2)) {
    OCTAVO_TRY(most, IntOf(call.T(2), "max_output_boxes_per_class"));
  }
  OCTAVO_TRY(const float overlap, Threshold(call, 3, 0.0f));
  OCTAVO_TRY(const float least, Threshold(call, 4, -INFINITY));
  const bool center = call.Int("center_point_box", 0) != 0;
  const int64_t n = boxes.shape()[1], classes = scores.shape()[1];
  std::vector<int64_t> order = WorkVector<int64_t>(n), found;
  std::vector<Box> chosen;
  ChargeWork(static_cast<size_t>(n) * sizeof(Box) * 2);
  for (int64_t line = 0; line < boxes.shape()[0] * classes; ++line) {
    const float* score = Ptr<float>(scores) + line * n;
    std::iota(order.begin(), order.end(), int64_t{0});
    std::erase_if(order, [&](int64_t i) { return !(score[i] > least); });
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    chosen.clear();
    ChargeWork(order.size() * 3 * sizeof(int64_t));
    for (const int64_t i : order) {
      if (static_cast<int64_t>(chosen.size()) >= most) break;
      const Box box = BoxOf(Ptr<float>(boxes) + (line / classes * n + i) * 4, center);
      if (std::ranges::any_of(chosen, [&](const Box& other) { return Overlaps(box, other, overlap); })) continue;
      chosen.push_back(box);
      found.insert(found.end(), {line / classes, line % classes, i});
    }
    order.resize(static_cast<size_t>(n));
  }
  call.Return(Tensor::Of<int64_t>(DType::kS64, {static_cast<int64_t>(found.size() / 3), 3}, found));
  return {};
}

}  // namespace

void RegisterRegions(Table& t) {
  t.Set(Op::kRoiAlign, RoiAlign);
  t.Set(Op::kMaxRoiPool, MaxRoiPool);
  t.Set(Op::kNonMaxSuppression, NonMaxSuppression);
}

}  // namespace octavo::ir::interpret
