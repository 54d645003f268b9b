// f32 Conv with constant weights through oneDNN: patch embeddings of ViTs, the front of speech models. Filters in parts of a fixed
// size, so that one image keeps several threads busy and bits do not depend on their number.
#include <algorithm>
#include <map>
#include <mutex>

#include "octavo/kernels/conv/conv_f32.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kFiltersAtOnce = 128;
constexpr size_t kMostShapes = 16;  // prepared; beyond that the cache starts anew

class ConvKernel : public Kernel {
 public:
  ConvKernel(Tensor weights, kernels::ConvShape shape, KernelPtr fallback)
      : weights_(std::move(weights)), shape_(std::move(shape)), fallback_(std::move(fallback)) {}
  std::string name() const override { return "conv_f32 onednn"; }

  Status Run(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const float* bias = call.Has(2) ? call.T(2).as<float>().data() : nullptr;
    const bool fits = x.rank() == static_cast<int64_t>(shape_.kernel.size()) + 2 && x.shape()[1] == shape_.channels &&
                      (bias == nullptr || call.T(2).size() == shape_.filters);
    if (!fits) return fallback_->Run(call);  // it says why
    kernels::ConvShape shape = shape_;
    shape.in.assign(x.shape().begin() + 2, x.shape().end());
    const std::shared_ptr<const Parts> parts = PartsFor(shape, bias != nullptr);
    if (parts == nullptr) return fallback_->Run(call);
    Shape result = {x.shape()[0], shape.filters};
    const std::vector<int64_t> out = shape.Out();
    result.insert(result.end(), out.begin(), out.end());
    const int64_t out_size = ir::ElementCount(out), in_size = shape.channels * ir::ElementCount(shape.in);
    float* y = call.Allocate(0, DType::kF32, result).mutable_as<float>().data();
    const auto count = static_cast<int64_t>(parts->size());
    std::vector<std::string> problems(static_cast<size_t>(result[0] * count));
    call.threads->For(result[0] * count, [&](int64_t i) {
      const int64_t image = i / count, first = i % count * kFiltersAtOnce;
      problems[static_cast<size_t>(i)] = (*parts)[static_cast<size_t>(i % count)].Run(
          x.as<float>().data() + image * in_size, bias == nullptr ? nullptr : bias + first,
          y + (image * shape.filters + first) * out_size);
    });
    for (const std::string& problem : problems) {
      if (!problem.empty()) return ir::Fail("{}", problem);
    }
    return {};
  }

 private:
  using Parts = std::vector<kernels::ConvF32>;

  // Null: not one for oneDNN.
  std::shared_ptr<const Parts> PartsFor(const kernels::ConvShape& shape, bool bias) const {
    const std::scoped_lock lock(mutex_);
    const auto it = prepared_.find(shape.in);
    if (it != prepared_.end()) return it->second;
    auto parts = std::make_shared<Parts>();
    const int64_t step = shape.groups == 1 ? kFiltersAtOnce : shape.filters;
    const int64_t filter_size = weights_.size() / shape.filters;
    for (int64_t first = 0; first < shape.filters; first += step) {
      kernels::ConvShape part = shape;
      part.filters = std::min(step, shape.filters - first);
      auto made = kernels::ConvF32::Make(part, weights_.as<float>().data() + first * filter_size, bias);
      if (!made) {
        parts = nullptr;
        break;
      }
      parts->push_back(std::move(*made));
    }
    if (prepared_.size() >= kMostShapes) prepared_.clear();
    return prepared_[shape.in] = parts;
  }

  Tensor weights_;
  kernels::ConvShape shape_;  // without `in`
  KernelPtr fallback_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const Parts>> prepared_;  // by the spatial dims of the input
};

}  // namespace

KernelPtr MakeConv(const Node& node, const CompileContext& c) {
  const Tensor* w = c.Constant(node.input(1));
  if (w == nullptr || w->dtype() != DType::kF32 || w->rank() < 3 || w->rank() > 5 || w->size() == 0) return nullptr;
  if (!c.Is(node.input(0), DType::kF32) || !c.Is(node.input(2), DType::kF32)) return nullptr;
  const std::string auto_pad = node.attrs.Str("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") return nullptr;
  const size_t dims = static_cast<size_t>(w->rank()) - 2;
  const auto ints = [&](std::string_view name, size_t count, int64_t otherwise) {
    return node.attrs.Has(name) ? node.attrs.Ints(name) : std::vector<int64_t>(count, otherwise);
  };
  kernels::ConvShape s;
  s.groups = node.attrs.Int("group", 1), s.filters = w->shape()[0], s.channels = w->shape()[1] * s.groups;
  s.kernel.assign(w->shape().begin() + 2, w->shape().end());
  s.stride = ints("strides", dims, 1), s.dilation = ints("dilations", dims, 1);
  const std::vector<int64_t> pads = auto_pad == "VALID" ? std::vector<int64_t>(2 * dims, 0) : ints("pads", 2 * dims, 0);
  if (pads.size() != 2 * dims || s.stride.size() != dims || s.dilation.size() != dims || s.groups < 1 ||
      (node.attrs.Has("kernel_shape") && node.attrs.Ints("kernel_shape") != s.kernel))
    return nullptr;
  s.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(dims));
  s.after.assign(pads.begin() + static_cast<int64_t>(dims), pads.end());
  return std::make_unique<ConvKernel>(*w, std::move(s),
                                      MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

}  // namespace octavo::runtime
