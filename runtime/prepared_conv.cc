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
  s.groups = node.attrs.Int("group", 1), s.transposed = node.op == Op::kConvTranspose;
  if (s.groups < 1 || s.groups > weights[0] || weights[0] % s.groups != 0) return {};
  s.filters = weights[0], s.channels = weights[1] * s.groups;  // no more than the weights have elements
  if (s.transposed) std::swap(s.filters, s.channels);
  s.kernel.assign(weights.begin() + 2, weights.end());
  s.stride = ints("strides", dims, 1), s.dilation = ints("dilations", dims, 1);
  const std::vector<int64_t> pads = auto_pad == "VALID" ? std::vector<int64_t>(2 * dims, 0) : ints("pads", 2 * dims, 0);
  if (pads.size() != 2 * dims || s.stride.size() != dims || s.dilation.size() != dims) return {};
  if (node.attrs.Has("kernel_shape") && node.attrs.Ints("kernel_shape") != s.kernel) return {};
  s.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(dims));
  s.after.assign(pads.begin() + static_cast<int64_t>(dims), pads.end());
  if (!s.transposed) return s;
  const std::vector<int64_t> more = ints("output_padding", dims, 0);
  if (more.size() != dims || !node.attrs.Ints("output_shape").empty()) return {};
  for (size_t d = 0; d < dims; ++d) {
    s.after[d] -= more[d];
    if (s.after[d] < 0 || more[d] < 0) return {};
  }
  return s;
}

namespace {

// About a quarter of the filters, from 32 to 128, and whole groups: each part reads the whole image again, or its channels.
int64_t FiltersAtOnce(int64_t filters, int64_t a_group) {
  const int64_t step = std::clamp<int64_t>((filters / 4 + 15) / 16 * 16, 32, 128);
  return a_group == filters ? step : std::max<int64_t>(1, step / a_group) * a_group;
}

// Windows of one element that meet each element once: the shape of the image does not matter.
bool IsProduct(const kernels::ConvShape& s) {
  const auto all = [](const std::vector<int64_t>& v, int64_t n) {
    return std::ranges::all_of(v, [n](int64_t x) { return x == n; });
  };
  return all(s.kernel, 1) && all(s.stride, 1) && all(s.before, 0) && all(s.after, 0);
}

}  // namespace

std::shared_ptr<const PreparedConv::Parts> PreparedConv::For(const std::vector<int64_t>& in, bool bias) const {
  constexpr size_t kMostShapes = 16;      // prepared; beyond that the cache starts anew
  constexpr double kMostElements = 1e12;  // of a result: no product of sizes below overflows, and no memory holds more
  const std::scoped_lock lock(mutex_);
  const auto it = prepared_.find(in);
  if (it != prepared_.end()) return it->second;
  if (std::ranges::contains(in, 0)) return nullptr;  // padding alone, which the interpreter knows
  kernels::ConvShape whole = shape_;
  whole.in = in;
  double elements = static_cast<double>(whole.filters);
  for (const int64_t n : whole.Out()) elements *= static_cast<double>(n);
  if (elements > kMostElements) return nullptr;
  const auto parts = shape_.transposed      ? Whole(whole, bias)
                     : shape_.channels_last ? ByRows(std::move(whole), bias)
                                            : ByFilters(std::move(whole), bias);
  if (prepared_.size() >= kMostShapes) prepared_.clear();
  return prepared_[in] = parts;
}

std::shared_ptr<const PreparedConv::Parts> PreparedConv::ByFilters(kernels::ConvShape whole, bool bias) const {
  auto made = std::make_shared<Parts>();
  made->out = whole.Out();
  const int64_t filters_a_group = whole.filters / whole.groups, channels_a_group = whole.channels / whole.groups;
  const int64_t step = FiltersAtOnce(whole.filters, filters_a_group);
  const int64_t filter_size = weights_.size() / whole.filters;
  const int64_t plane = ir::ElementCount(whole.in), out_size = ir::ElementCount(made->out);
  for (int64_t first = 0; first < whole.filters; first += step) {
    kernels::ConvShape part = whole;
    part.filters = std::min(step, whole.filters - first);
    if (part.groups > 1) part.groups = part.filters / filters_a_group, part.channels = part.groups * channels_a_group;
    auto conv = kernels::ConvF32::Make(part, weights_.as<float>().data() + first * filter_size, bias);
    if (!conv) return nullptr;
    const int64_t channel = whole.groups == 1 ? 0 : first / filters_a_group * channels_a_group;
    made->parts.push_back({channel * plane, first * out_size, part.filters * out_size, first,
                           std::make_shared<const kernels::ConvF32>(std::move(*conv))});
  }
  return made;
}

std::shared_ptr<const PreparedConv::Parts> PreparedConv::Whole(const kernels::ConvShape& whole, bool bias) const {
  auto conv = kernels::ConvF32::Make(whole, weights_.as<float>().data(), bias, like_.get());
  if (!conv) return nullptr;
  auto made = std::make_shared<Parts>();
  made->out = whole.Out();
  const auto kept = std::make_shared<const kernels::ConvF32>(std::move(*conv));
  if (like_ == nullptr) like_ = kept;
  made->parts.push_back({0, 0, ir::ElementCount(made->out) * whole.filters, 0, kept});
  return made;
}

std::shared_ptr<const PreparedConv::Parts> PreparedConv::ByRows(kernels::ConvShape whole, bool bias) const {
  constexpr int64_t kFloats = 32768;  // of a part of the result, which stays in L2 for what comes behind
  auto made = std::make_shared<Parts>();
  made->out = whole.Out();
  if (std::ranges::contains(made->out, 0)) return nullptr;
  if (IsProduct(whole)) {
    const int64_t elements = ir::ElementCount(whole.in);
    std::ranges::fill(whole.in, 1), whole.in[0] = elements;
  }
  const Shape out = whole.Out();
  const int64_t x_row = ir::ElementCount(whole.in) / whole.in[0] * whole.channels;
  const int64_t y_row = ir::ElementCount(out) / out[0] * whole.filters;
  const int64_t parts = std::clamp<int64_t>((out[0] * y_row + kFloats - 1) / kFloats, 1, out[0]);
  const int64_t reach = whole.dilation[0] * (whole.kernel[0] - 1) + 1;
  Convs convs;  // those of parts in the middle are the same
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = out[0] * i / parts, last = out[0] * (i + 1) / parts;
    const int64_t begin = first * whole.stride[0] - whole.before[0],
                  end = (last - 1) * whole.stride[0] - whole.before[0] + reach;
    kernels::ConvShape part = whole;
    const int64_t from = std::clamp<int64_t>(begin, 0, whole.in[0]), to = std::clamp<int64_t>(end, from, whole.in[0]);
    if (from == to) return nullptr;  // all of it is padding
    part.in[0] = to - from, part.before[0] = from - begin, part.after[0] = end - to;
    auto& conv = convs[{part.in[0], part.before[0], part.after[0]}];
    if (conv == nullptr) {
      auto one = kernels::ConvF32::Make(part, weights_.as<float>().data(), bias, like_.get());
      if (!one) return nullptr;
      conv = std::make_shared<const kernels::ConvF32>(std::move(*one));
      if (like_ == nullptr) like_ = conv;
    }
    made->parts.push_back({from * x_row, first * y_row, (last - first) * y_row, 0, conv});
  }
  return made;
}

}  // namespace octavo::runtime
