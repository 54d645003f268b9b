#include "octavo/kernels/conv/conv_f32.h"

#include <format>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "octavo/kernels/gemm/onednn.h"

namespace octavo::kernels {

using dnnl::memory;

struct ConvF32::State {
  dnnl::convolution_forward::primitive_desc desc;
  dnnl::convolution_forward primitive;
  memory weights;
};

ConvF32::ConvF32(std::unique_ptr<State> state) : state_(std::move(state)) {}
ConvF32::ConvF32(ConvF32&&) noexcept = default;
ConvF32& ConvF32::operator=(ConvF32&&) noexcept = default;
ConvF32::~ConvF32() = default;

std::vector<int64_t> ConvShape::Out() const {
  std::vector<int64_t> out;
  for (size_t d = 0; d < in.size(); ++d) {
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
  }
  return "";
}

memory::dims Join(memory::dims first, const std::vector<int64_t>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

// Row-major.
memory::desc Plain(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return {dims, memory::data_type::f32, strides};
}

}  // namespace

std::expected<ConvF32, std::string> ConvF32::Make(const ConvShape& s, const float* w, bool bias) {
  if (std::string why = Refusal(s); !why.empty()) return std::unexpected(std::move(why));
  using Desc = dnnl::convolution_forward::primitive_desc;
  const memory::dims weights = s.groups == 1 ? Join({s.filters, s.channels}, s.kernel)
                                             : Join({s.groups, s.filters / s.groups, s.channels / s.groups}, s.kernel);
  memory::dims dilation = s.dilation;
  for (int64_t& d : dilation) --d;  // oneDNN counts the gaps
  try {
    onednn::ThreadState& thread = onednn::ThisThread();
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(
        dnnl::scratchpad_mode::user);  // the caller's, so that threads can run one primitive at once
    const memory::desc x = Plain(Join({1, s.channels}, s.in)), y = Plain(Join({1, s.filters}, s.Out()));
    const memory::desc any(weights, memory::data_type::f32, memory::format_tag::any);
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto algorithm = dnnl::algorithm::convolution_auto;
    auto state = std::make_unique<State>();
    state->desc = bias
                      ? Desc(onednn::Engine(), kind, algorithm, x, any, Plain({s.filters}), y, s.stride, dilation,
                             s.before, s.after, attr)
                      : Desc(onednn::Engine(), kind, algorithm, x, any, y, s.stride, dilation, s.before, s.after, attr);
    if (std::string_view(state->desc.impl_info_str()).find("ref") != std::string_view::npos) {
      return std::unexpected("oneDNN has only its reference loops for this convolution");  // 500 times as slow
    }
    state->primitive = dnnl::convolution_forward(state->desc);
    state->weights = memory(state->desc.weights_desc(), onednn::Engine());
    memory plain(Plain(weights), onednn::Engine(), const_cast<float*>(w));
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
  try {
    onednn::ThreadState& thread = onednn::ThisThread();
    const memory::desc scratchpad = state_->desc.scratchpad_desc();
    std::unordered_map<int, memory> args = {
        {DNNL_ARG_SRC, wrap(state_->desc.src_desc(), x)},
        {DNNL_ARG_WEIGHTS, state_->weights},
        {DNNL_ARG_DST, wrap(state_->desc.dst_desc(), y)},
        {DNNL_ARG_SCRATCHPAD, wrap(scratchpad, thread.Scratchpad(scratchpad.get_size()))},
    };
    if (bias != nullptr) args.insert({DNNL_ARG_BIAS, wrap(state_->desc.bias_desc(), bias)});
    const onednn::SignalsHeld held;
    state_->primitive.execute(thread.stream, args);
    thread.stream.wait();
  } catch (const dnnl::error& error) {
    return std::format("oneDNN refuses the convolution: {}", error.what());
  }
  return {};
}

}  // namespace octavo::kernels
