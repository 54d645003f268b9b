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
  s.groups = node.attrs.Int("group", 1), s.filters = weights[0];
  if (s.groups < 1 || s.groups > s.filters || s.filters % s.groups != 0) return {};
  s.channels = weights[1] * s.groups;  // no more than the weights have elements
  s.kernel.assign(weights.begin() + 2, weights.end());
  s.stride = ints("strides", dims, 1), s.dilation = ints("dilations", dims, 1);
  const std::vector<int64_t> pads = auto_pad == "VALID" ? std::vector<int64_t>(2 * dims, 0) : ints("pads", 2 * dims, 0);
  if (pads.size() != 2 * dims || s.stride.size() != dims || s.dilation.size() != dims) return {};
  if (node.attrs.Has("kernel_shape") && node.attrs.Ints("kernel_shape") != s.kernel) return {};
  s.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(dims));
  s.after.assign(pads.begin() + static_cast<int64_t>(dims), pads.end());
  return s;
}

namespace {

// About a quarter of the filters, from 32 to 128, and whole groups: each part reads the whole image again, or its channels.
int64_t FiltersAtOnce(int64_t filters, int64_t a_group) {
  const int64_t step = std::clamp<int64_t>((filters / 4 + 15) / 16 * 16, 32, 128);
  return a_group == filters ? step : std::max<int64_t>(1, step / a_group) * a_group;
}

}  // namespace

std::shared_ptr<const PreparedConv::Parts> PreparedConv::For(const std::vector<int64_t>& in, bool bias) const {
  constexpr size_t kMostShapes = 16;  // prepared; beyond that the cache starts anew
  const std::scoped_lock lock(mutex_);
  const auto it = prepared_.find(in);
  if (it != prepared_.end()) return it->second;
  auto parts = std::make_shared<Parts>();
  const int64_t filters_a_group = shape_.filters / shape_.groups, channels_a_group = shape_.channels / shape_.groups;
  const int64_t step = FiltersAtOnce(shape_.filters, filters_a_group);
  const int64_t filter_size = weights_.size() / shape_.filters;
  for (int64_t first = 0; first < shape_.filters && parts != nullptr; first += step) {
    kernels::ConvShape part = shape_;
    part.in = in, part.filters = std::min(step, shape_.filters - first);
    if (part.groups > 1) part.groups = part.filters / filters_a_group, part.channels = part.groups * channels_a_group;
    auto made = kernels::ConvF32::Make(part, weights_.as<float>().data() + first * filter_size, bias);
    const int64_t channel = shape_.groups == 1 ? 0 : first / filters_a_group * channels_a_group;
    made ? parts->push_back({first, part.filters, channel, std::move(*made)}) : parts.reset();
  }
  if (prepared_.size() >= kMostShapes) prepared_.clear();
  return prepared_[in] = parts;
}

}  // namespace octavo::runtime
