// ConvInteger and QLinearConv with constant weights, exactly, by float convolutions: channels in parts so small that every partial sum is a whole
// number below 2^24, which float adds in any order without rounding. The parts are added as integers.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/requantize.h"
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/runtime/prepared_conv.h"

namespace octavo::runtime {

namespace {

struct ChannelGroup {
  int64_t first = 0;
  std::unique_ptr<PreparedConv> conv;
};

// How sums of QLinearConv become codes.
struct ToCodes {
  std::vector<float> scale;   // of each filter: x's times w's by y's
  std::vector<int64_t> bias;  // of each filter
  Tensor zero;
};

class ConvIntegerKernel : public Kernel {
 public:
  // `x`: the type of the image. `codes`: of QLinearConv.
  ConvIntegerKernel(kernels::Arch arch, DType x, kernels::ConvShape shape, std::vector<ChannelGroup> groups,
                    std::optional<ToCodes> codes, KernelPtr fallback)
      : arch_(arch),
        shape_(std::move(shape)),
        groups_(std::move(groups)),
        codes_(std::move(codes)),
        fallback_(std::move(fallback)) {
    needs.Typed(0, x);
  }
  std::string name() const override { return codes_ ? "qlinear_conv onednn" : "conv_integer onednn"; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    kernels::ConvShape shape = shape_;
    const bool fits = x.rank() == static_cast<int64_t>(shape.kernel.size()) + 2 && x.shape()[1] == shape.channels &&
                      (!call.Has(2) || call.T(2).size() == 1);
    if (!fits) return fallback_->Run(call);  // it says why
    shape.in.assign(x.shape().begin() + 2, x.shape().end());
    std::vector<std::shared_ptr<const PreparedConv::Parts>> parts;
    for (const ChannelGroup& group : groups_) {
      parts.push_back(group.conv->For(shape.in, false));
      if (parts.back() == nullptr) return fallback_->Run(call);
    }
    const std::vector<int64_t> out = shape.Out();
    Shape result = {x.shape()[0], shape.filters};
    result.insert(result.end(), out.begin(), out.end());
    const int64_t out_size = ir::ElementCount(out), plane = ir::ElementCount(shape.in);
    const float* centered = Centered(call);
    std::byte* y = call.Allocate(0, codes_ ? codes_->zero.dtype() : DType::kS32, result).mutable_data();
    const auto count = static_cast<int64_t>(parts[0]->parts.size());
    std::vector<std::string> problems(static_cast<size_t>(result[0] * count));
    call.threads->For(result[0] * count, [&](int64_t i) {
      const int64_t image = i / count;
      const auto at = static_cast<size_t>(i % count);
      const PreparedConv::Part& first = parts[0]->parts[at];
      const int64_t n = first.size, to = image * shape.filters * out_size + first.y;
      const TaskScratch floats(static_cast<size_t>(n) * sizeof(float)), wide(static_cast<size_t>(n) * sizeof(int64_t));
      const auto* made = reinterpret_cast<const float*>(floats.data());
      auto* sums = reinterpret_cast<int64_t*>(wide.data());
      for (size_t g = 0; g < groups_.size(); ++g) {
        const PreparedConv::Part& part = parts[g]->parts[at];
        const float* from = centered + (image * shape.channels + groups_[g].first) * plane + part.x;
        std::string& problem = problems[static_cast<size_t>(i)];
        problem = part.conv->Run(from, nullptr, reinterpret_cast<float*>(floats.data()));
        if (!problem.empty()) return;
        for (int64_t e = 0; e < n; ++e) sums[e] = (g == 0 ? 0 : sums[e]) + static_cast<int64_t>(made[e]);
      }
      if (codes_) return Requantize(sums, n, out_size, first.first_filter, reinterpret_cast<uint8_t*>(y) + to);
      auto* results = reinterpret_cast<int32_t*>(y) + to;  // wraps as the interpreter does
      for (int64_t e = 0; e < n; ++e) results[e] = static_cast<int32_t>(sums[e]);
    });
    for (const std::string& problem : problems) {
      if (!problem.empty()) return ir::Fail("{}", problem);
    }
    return {};
  }

 private:
  // `pixels` of each filter, from `filter` on.
  void Requantize(const int64_t* sums, int64_t n, int64_t pixels, int64_t filter, uint8_t* y) const {
    const ir::interpret::Requantizer requantize(codes_->zero);
    for (int64_t e = 0; e < n; ++filter) {
      const auto f = static_cast<size_t>(filter);
      for (const int64_t end = e + pixels; e < end; ++e) y[e] = requantize(sums[e] + codes_->bias[f], codes_->scale[f]);
    }
  }

  // x less its zero point; the padding is 0 then.
  const float* Centered(StepCall& call) const {
    constexpr int64_t kGrain = 32768;
    const Tensor& x = call.T(0);
    const int32_t zero = call.Has(2) ? ScalarInt(call.T(2)) : 0;
    auto* to = reinterpret_cast<float*>(call.Scratch(static_cast<size_t>(x.size()) * sizeof(float)));
    const int64_t parts = PartsOf(x.size(), kGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(x.size(), parts, i, 64);
      kernels::DequantizeLinear(arch_, x.data() + p.begin, x.dtype(), p.end - p.begin, 1.0f, zero, to + p.begin);
    });
    return to;
  }

  kernels::Arch arch_;
  kernels::ConvShape shape_;  // without `in`
  std::vector<ChannelGroup> groups_;
  std::optional<ToCodes> codes_;
  KernelPtr fallback_;
};

// Weights less their zero points, as f32; undefined where those are neither one nor one a filter.
Tensor CenteredWeights(const Tensor& w, const Tensor* zero) {
  const int64_t filters = w.shape()[0], size = w.size() / filters;
  if (zero != nullptr && zero->size() != 1 && zero->size() != filters) return {};
  Tensor real = Tensor::Empty(DType::kF32, w.shape());
  for (int64_t i = 0; i < w.size(); ++i) {
    const int64_t z = zero == nullptr ? 0 : zero->GetInt(zero->size() == 1 ? 0 : i / size);
    real.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(w.GetInt(i) - z);
  }
  return real;
}

// Empty: one channel alone is too much.
std::vector<ChannelGroup> GroupsOf(const Tensor& w, const kernels::ConvShape& shape) {
  constexpr double kMostSum = (1 << 24) / 255.0;  // of |w| in a filter, for |x| up to 255
  const int64_t window = w.size() * shape.groups / (shape.filters * shape.channels);
  const float* from = w.as<float>().data();
  const auto slice = [&](int64_t first, int64_t end) {
    Shape part_shape = w.shape();
    part_shape[1] = end - first;
    Tensor part = Tensor::Empty(DType::kF32, part_shape);
    for (int64_t f = 0; f < shape.filters; ++f) {
      std::copy_n(from + (f * shape.channels + first) * window, (end - first) * window,
                  part.mutable_as<float>().data() + f * (end - first) * window);
    }
    kernels::ConvShape s = shape;
    s.channels = end - first;
    return ChannelGroup{first, std::make_unique<PreparedConv>(std::move(part), std::move(s))};
  };
  std::vector<ChannelGroup> groups;
  if (shape.groups > 1) {  // few channels each: in one part, or not at all
    const int64_t size = w.size() / shape.filters;
    for (int64_t f = 0; f < shape.filters; ++f) {
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += std::fabs(from[f * size + i]);
      if (sum > kMostSum) return {};
    }
    groups.push_back({0, std::make_unique<PreparedConv>(w, shape)});
    return groups;
  }
  std::vector<double> sums(static_cast<size_t>(shape.filters), 0.0);
  int64_t first = 0;
  for (int64_t c = 0; c < shape.channels; ++c) {
    std::vector<double> own(sums.size(), 0.0);
    bool fits = true, alone = true;
    for (size_t f = 0; f < sums.size(); ++f) {
      const float* filter = from + (static_cast<int64_t>(f) * shape.channels + c) * window;
      for (int64_t k = 0; k < window; ++k) own[f] += std::fabs(filter[k]);
      fits &= sums[f] + own[f] <= kMostSum, alone &= own[f] <= kMostSum;
    }
    if (!alone) return {};
    if (!fits) groups.push_back(slice(first, c)), first = c, std::ranges::fill(sums, 0.0);
    for (size_t f = 0; f < sums.size(); ++f) sums[f] += own[f];
  }
  groups.push_back(slice(first, shape.channels));
  return groups;
}

// Operands x, w, x's zero point and w's, as ConvInteger has them, by their slots.
KernelPtr Make(const Node& node, const CompileContext& c, size_t w_slot, size_t w_zero_slot,
               std::optional<ToCodes> codes) {
  const Tensor* w = c.Constant(node.input(w_slot));
  const Tensor* zero = node.input(w_zero_slot) ? c.Constant(node.input(w_zero_slot)) : nullptr;
  const DType x = c.graph.value(node.input(0)).type.dtype;
  if (w == nullptr || !quant::IsInt8(w->dtype()) || !quant::IsInt8(x) || w->size() == 0) return nullptr;
  if (node.input(w_zero_slot) && zero == nullptr) return nullptr;
  auto shape = ConvShapeOf(node, w->shape());
  if (!shape) return nullptr;
  const Tensor real = CenteredWeights(*w, zero);
  std::vector<ChannelGroup> groups = real.defined() ? GroupsOf(real, *shape) : std::vector<ChannelGroup>();
  if (groups.empty()) return nullptr;
  return std::make_unique<ConvIntegerKernel>(c.arch, x, std::move(*shape), std::move(groups), std::move(codes),
                                             MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

}  // namespace

KernelPtr MakeConvInteger(const Node& node, const CompileContext& c) { return Make(node, c, 1, 3, {}); }

// x x_scale x_zero w w_scale w_zero y_scale y_zero [bias]
KernelPtr MakeQLinearConv(const Node& node, const CompileContext& c) {
  const Tensor *w = c.Constant(node.input(3)), *x_scale = c.Constant(node.input(1)),
               *w_scale = c.Constant(node.input(4)), *y_scale = c.Constant(node.input(6)),
               *zero = c.Constant(node.input(7)), *bias = c.Constant(node.input(8));
  if (w == nullptr || w->rank() < 3 || (node.input(8).valid() && bias == nullptr)) return nullptr;
  const int64_t filters = w->shape()[0];
  for (const Tensor* t : {x_scale, w_scale, y_scale}) {
    const bool fits =
        t != nullptr && t->dtype() == DType::kF32 && (t->size() == 1 || (t == w_scale && t->size() == filters));
    if (!fits) return nullptr;
  }
  if (zero == nullptr || zero->size() != 1 || !quant::IsInt8(zero->dtype())) return nullptr;
  if (bias != nullptr && (bias->dtype() != DType::kS32 || bias->size() != filters)) return nullptr;
  ToCodes codes{.scale = w_scale->ToFloats(), .bias = {}, .zero = *zero};
  codes.bias = bias != nullptr ? bias->ToInts() : std::vector<int64_t>(static_cast<size_t>(filters), 0);
  codes.scale.resize(static_cast<size_t>(filters), codes.scale[0]);
  for (float& scale : codes.scale) scale = ScalarF32(*x_scale) * scale / ScalarF32(*y_scale);
  return Make(node, c, 3, 5, std::move(codes));
}

}  // namespace octavo::runtime
