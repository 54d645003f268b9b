#include "octavo/runtime/prepared_conv.h"

#include <algorithm>

namespace octavo::runtime {

std::optional<kernels::ConvShape> ConvShapeOf(const Node& node, const Shape& weights) {
  if (weights.size() < 3 || weights.size() > 5) return {};
  const size_t dims = weights.size() - 2;
  const std::string auto_pad = node.attrs.Str("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") return {};
  const auto ints = [&](std::string_view name, size_t count, int64_t otherwise) {
    return node.attrs.Has(name) ? node.attrs.Ints(name) : std::vector<int64_t>(count, otherwise);
  };
  kernels::ConvShape s;
  s.groups = node.attrs.Int("group", 1), s.filters = weights[0], s.channels = weights[1] * s.groups;
  s.kernel.assign(weights.begin() + 2, weights.end());
  s.stride = ints("strides", dims, 1), s.dilation = ints("dilations", dims, 1);
  const std::vector<int64_t> pads = auto_pad == "VALID" ? std::vector<int64_t>(2 * dims, 0) : ints("pads", 2 * dims, 0);
  if (pads.size() != 2 * dims || s.stride.size() != dims || s.dilation.size() != dims || s.groups < 1) return {};
  if (node.attrs.Has("kernel_shape") && node.attrs.Ints("kernel_shape") != s.kernel) return {};
  s.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(dims));
  s.after.assign(pads.begin() + static_cast<int64_t>(dims), pads.end());
  return s;
}

std::shared_ptr<const PreparedConv::Parts> PreparedConv::For(const std::vector<int64_t>& in, bool bias) const {
  constexpr size_t kMostShapes = 16;  // prepared; beyond that the cache starts anew
  const std::scoped_lock lock(mutex_);
  const auto it = prepared_.find(in);
  if (it != prepared_.end()) return it->second;
  auto parts = std::make_shared<Parts>();
  const int64_t step = shape_.groups == 1 ? kFiltersAtOnce : shape_.filters;
  const int64_t filter_size = weights_.size() / shape_.filters;
  for (int64_t first = 0; first < shape_.filters && parts != nullptr; first += step) {
    kernels::ConvShape part = shape_;
    part.in = in, part.filters = std::min(step, shape_.filters - first);
    auto made = kernels::ConvF32::Make(part, weights_.as<float>().data() + first * filter_size, bias);
    made ? parts->push_back(std::move(*made)) : parts.reset();
  }
  if (prepared_.size() >= kMostShapes) prepared_.clear();
  return prepared_[in] = parts;
}

}  // namespace octavo::runtime
