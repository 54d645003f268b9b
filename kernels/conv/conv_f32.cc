#include "octavo/kernels/conv/conv_f32.h"

#include <algorithm>
#include <format>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "octavo/kernels/conv/onednn.h"

namespace octavo::kernels {

using dnnl::memory;

namespace {
using Desc = dnnl::primitive_desc;

// From one layout to another; empty where they are the same.
struct Turn {
  Turn() = default;
  Turn(const memory::desc& from, const memory::desc& to) {
    if (from == to) return;
    reorder = dnnl::reorder(dnnl::reorder::primitive_desc(onednn::Engine(), from, onednn::Engine(), to));
    bytes = from.get_size() > to.get_size() ? from.get_size() : to.get_size();
  }
  std::optional<dnnl::reorder> reorder;
  size_t bytes = 0;  // of what stands between, in either layout
};
}  // namespace

struct ConvF32::State {
  Desc desc;
  dnnl::primitive primitive;
  memory weights;
  memory::desc x, y;  // the caller's
  Turn turn_x, turn_y;
};

ConvF32::ConvF32(std::unique_ptr<State> state) : state_(std::move(state)) {}
ConvF32::ConvF32(ConvF32&&) noexcept = default;
ConvF32& ConvF32::operator=(ConvF32&&) noexcept = default;
ConvF32::~ConvF32() = default;

std::vector<int64_t> ConvShape::Out() const {
  std::vector<int64_t> out;
  for (size_t d = 0; d < in.size(); ++d) {
    if (transposed) {
      out.push_back(
          std::max<int64_t>(0, (in[d] - 1) * stride[d] - before[d] - after[d] + dilation[d] * (kernel[d] - 1) + 1));
      continue;
    }
    const int64_t room = in[d] + before[d] + after[d] - dilation[d] * (kernel[d] - 1) - 1;
    out.push_back(room < 0 ? 0 : room / stride[d] + 1);
  }
  return out;
}

namespace {

std::string Refusal(const ConvShape& s) {
  constexpr int64_t kMost = int64_t{1} << 30;  // so that products of two do not overflow
  const size_t dims = s.in.size();
  if (dims < 1 || dims > 3) return "a convolution has one to three spatial dims";
  for (const auto* v : {&s.kernel, &s.stride, &s.dilation, &s.before, &s.after}) {
    if (v->size() != dims) return "a convolution needs kernel, stride, dilation and padding for each spatial dim";
  }
  if (s.groups < 1 || s.channels < 1 || s.filters < 1 || s.channels % s.groups != 0 || s.filters % s.groups != 0) {
    return std::format("{} channels and {} filters do not make {} groups", s.channels, s.filters, s.groups);
  }
  for (size_t d = 0; d < dims; ++d) {
    for (const auto* v : {&s.in, &s.kernel, &s.stride, &s.dilation, &s.before, &s.after}) {
      if ((*v)[d] > kMost) return "a size, stride, dilation or padding of the convolution is out of range";
    }
    if (s.in[d] < 1 || s.kernel[d] < 1 || s.stride[d] < 1 || s.dilation[d] < 1 || s.before[d] < 0 || s.after[d] < 0) {
      return "a size, stride, dilation or padding of the convolution is out of range";
    }
  }
  for (const int64_t n : s.Out()) {
    if (n < 1) return "the window of the convolution does not fit into its input";
    if (n > kMost) return "a size, stride, dilation or padding of the convolution is out of range";
  }
  return "";
}

memory::dims Join(memory::dims first, const std::vector<int64_t>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

// [1][channels][size...] in the layout of the caller.
memory::desc Image(int64_t channels, const std::vector<int64_t>& size, bool channels_last) {
  const memory::dims dims = Join({1, channels}, size);
  memory::dims strides(dims.size(), 1);
  int64_t step = channels_last ? channels : 1;
  for (size_t i = dims.size(); i-- > 2;) strides[i] = step, step *= dims[i];
  if (!channels_last) strides[1] = step, step *= channels;
  strides[0] = step;
  return {dims, memory::data_type::f32, strides};
}

// Row-major.
memory::desc Plain(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return {dims, memory::data_type::f32, strides};
}

// [groups,] filters, channels of a group, kernel..., where the channels lie in front of the filters.
memory::desc Swapped(const memory::dims& dims, bool grouped) {
  const size_t filters = grouped ? 1 : 0;
  memory::dims order = dims;
  std::swap(order[filters], order[filters + 1]);
  memory::dims strides = Plain(order).get_strides();
  std::swap(strides[filters], strides[filters + 1]);
  return {dims, memory::data_type::f32, strides};
}

}  // namespace

namespace {

bool Runs(const Desc& desc, std::string_view by) {
  return std::string_view(desc.impl_info_str()).find(by) != std::string_view::npos;
}

Desc Describe(const ConvShape& s, const memory::desc& x, const memory::desc& w, const memory::desc& y, bool bias) {
  memory::dims dilation = s.dilation;
  for (int64_t& d : dilation) --d;  // oneDNN counts the gaps
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // the caller's, so that threads can run one primitive at once
  const auto kind = dnnl::prop_kind::forward_inference;
  if (s.transposed) {
    const auto direct = dnnl::algorithm::deconvolution_direct;
    using Made = dnnl::deconvolution_forward::primitive_desc;
    return bias ? Made(onednn::Engine(), kind, direct, x, w, Plain({s.filters}), y, s.stride, dilation, s.before,
                       s.after, attr)
                : Made(onednn::Engine(), kind, direct, x, w, y, s.stride, dilation, s.before, s.after, attr);
  }
  const auto direct = dnnl::algorithm::convolution_direct;  // Winograd's sums of integers would not be exact
  using Made = dnnl::convolution_forward::primitive_desc;
  return bias ? Made(onednn::Engine(), kind, direct, x, w, Plain({s.filters}), y, s.stride, dilation, s.before, s.after,
                     attr)
              : Made(onednn::Engine(), kind, direct, x, w, y, s.stride, dilation, s.before, s.after, attr);
}

// Row-major images mostly get im2col and a GEMM, also where a group has one channel. The loops over blocks of channels are faster though they
// turn the image there and back: the 38 convolutions of PP-OCR v4's recognizer 15 ms instead of 79 (Zen 4, AVX2, two threads). Images of few channels
// are slow with channels last: the 7 x 7 over 3 channels of a ResNet 12.5 ms, from rows to blocks 3.3 (Zen 3).
Desc Fastest(const ConvShape& s, const memory::desc& x, const memory::desc& w, const memory::desc& y, bool bias) {
  constexpr int64_t kFewChannels = 8;
  const auto any = [](const memory::desc& d) {
    return memory::desc(d.get_dims(), memory::data_type::f32, memory::format_tag::any);
  };
  const auto slow = [](const Desc& desc) { return Runs(desc, "gemm") || Runs(desc, "ref"); };
  const bool is_product =
      s.groups == 1 && !s.transposed && std::ranges::all_of(s.kernel, [](int64_t k) { return k == 1; });
  if (s.channels_last && !is_product && s.groups == 1 && s.channels < kFewChannels) {
    const Desc rows = Describe(s, Image(s.channels, s.in, false), w, any(y), bias);
    if (!slow(rows)) return rows;
  }
  Desc given = Describe(s, x, w, y, bias);
  if (is_product || !slow(given)) return given;
  Desc blocked = Describe(s, any(x), w, any(y), bias);
  return slow(blocked) ? given : blocked;
}

}  // namespace

std::expected<ConvF32, std::string> ConvF32::Make(const ConvShape& s, const float* w, bool bias, const ConvF32* like) {
  if (std::string why = Refusal(s); !why.empty()) return std::unexpected(std::move(why));
  const memory::dims weights = s.groups == 1 ? Join({s.filters, s.channels}, s.kernel)
                                             : Join({s.groups, s.filters / s.groups, s.channels / s.groups}, s.kernel);
  try {
    const onednn::OneThread one;
    onednn::ThreadState& thread = onednn::ThisThread();
    auto state = std::make_unique<State>();
    state->x = Image(s.channels, s.in, s.channels_last), state->y = Image(s.filters, s.Out(), s.channels_last);
    const memory::desc any(weights, memory::data_type::f32, memory::format_tag::any);
    state->desc = Fastest(s, state->x, any, state->y, bias);
    if (Runs(state->desc, "ref")) {
      return std::unexpected("oneDNN has only its reference loops for this convolution");  // 500 times as slow
    }
    state->turn_x = Turn(state->x, state->desc.src_desc());
    state->turn_y = Turn(state->desc.dst_desc(), state->y);
    state->primitive = dnnl::primitive(state->desc.get());
    if (like != nullptr && like->state_->weights.get_desc() == state->desc.weights_desc()) {
      state->weights = like->state_->weights;
      return ConvF32(std::move(state));
    }
    state->weights = memory(state->desc.weights_desc(), onednn::Engine());
    memory plain(s.transposed ? Swapped(weights, s.groups > 1) : Plain(weights), onednn::Engine(),
                 const_cast<float*>(w));
    dnnl::reorder(plain, state->weights).execute(thread.stream, plain, state->weights);
    thread.stream.wait();
    return ConvF32(std::move(state));
  } catch (const dnnl::error& error) {
    return std::unexpected(std::format("oneDNN refuses the convolution: {}", error.what()));
  }
}

std::string ConvF32::Run(const float* x, const float* bias, float* y) const {
  const auto wrap = [](const memory::desc& desc, const void* p) {
    return memory(desc, onednn::Engine(), const_cast<void*>(p));
  };
  const State& s = *state_;
  try {
    onednn::ThreadState& thread = onednn::ThisThread();
    const memory::desc scratchpad = s.desc.scratchpad_desc();
    const auto whole_lines = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
    const size_t at_x = whole_lines(scratchpad.get_size()), at_y = at_x + whole_lines(s.turn_x.bytes);
    auto* room = static_cast<uint8_t*>(thread.Scratchpad(at_y + s.turn_y.bytes));
    memory from = wrap(s.x, x), to = wrap(s.y, y);
    memory src = s.turn_x.reorder ? wrap(s.desc.src_desc(), room + at_x) : from;
    memory dst = s.turn_y.reorder ? wrap(s.desc.dst_desc(), room + at_y) : to;
    std::unordered_map<int, memory> args = {{DNNL_ARG_SRC, src},
                                            {DNNL_ARG_WEIGHTS, s.weights},
                                            {DNNL_ARG_DST, dst},
                                            {DNNL_ARG_SCRATCHPAD, wrap(scratchpad, room)}};
    if (bias != nullptr) args.insert({DNNL_ARG_BIAS, wrap(s.desc.query_md(dnnl::query::weights_md, 1), bias)});
    const onednn::OneThread one;
    const onednn::SignalsHeld held;
    if (s.turn_x.reorder) s.turn_x.reorder->execute(thread.stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, src}});
    s.primitive.execute(thread.stream, args);
    if (s.turn_y.reorder) s.turn_y.reorder->execute(thread.stream, {{DNNL_ARG_FROM, dst}, {DNNL_ARG_TO, to}});
    thread.stream.wait();
  } catch (const dnnl::error& error) {
    return std::format("oneDNN refuses the convolution: {}", error.what());
  }
  return {};
}

}  // namespace octavo::kernels
