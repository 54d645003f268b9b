// f32 Conv with constant weights through oneDNN: patch embeddings of ViTs, the front of speech models.
#include "octavo/runtime/model.h"
#include "octavo/runtime/prepared_conv.h"

namespace octavo::runtime {

namespace {

class ConvKernel : public Kernel {
 public:
  ConvKernel(Tensor weights, kernels::ConvShape shape, bool bias, KernelPtr fallback)
      : conv_(std::move(weights), std::move(shape)), fallback_(std::move(fallback)) {
    needs.Typed(0, DType::kF32);
    if (bias) needs.Typed(2, DType::kF32);
  }
  std::string name() const override { return "conv_f32 onednn"; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    kernels::ConvShape shape = conv_.shape();
    const float* bias = call.Has(2) ? call.T(2).as<float>().data() : nullptr;
    const bool fits = x.rank() == static_cast<int64_t>(shape.kernel.size()) + 2 && x.shape()[1] == shape.channels &&
                      (bias == nullptr || call.T(2).size() == shape.filters);
    if (!fits) return fallback_->Run(call);  // it says why
    shape.in.assign(x.shape().begin() + 2, x.shape().end());
    const auto parts = conv_.For(shape.in, bias != nullptr);
    if (parts == nullptr) return fallback_->Run(call);
    const std::vector<int64_t> out = shape.Out();
    Shape result = {x.shape()[0], shape.filters};
    result.insert(result.end(), out.begin(), out.end());
    const int64_t out_size = ir::ElementCount(out), plane = ir::ElementCount(shape.in);
    float* y = call.Allocate(0, DType::kF32, result).mutable_as<float>().data();
    const auto count = static_cast<int64_t>(parts->size());
    std::vector<std::string> problems(static_cast<size_t>(result[0] * count));
    call.threads->For(result[0] * count, [&](int64_t i) {
      const int64_t image = i / count;
      const PreparedConv::Part& part = (*parts)[static_cast<size_t>(i % count)];
      problems[static_cast<size_t>(i)] =
          part.conv.Run(x.as<float>().data() + (image * shape.channels + part.first_channel) * plane,
                        bias == nullptr ? nullptr : bias + part.first_filter,
                        y + (image * shape.filters + part.first_filter) * out_size);
    });
    for (const std::string& problem : problems) {
      if (!problem.empty()) return ir::Fail("{}", problem);
    }
    return {};
  }

 private:
  PreparedConv conv_;
  KernelPtr fallback_;
};

}  // namespace

KernelPtr MakeConv(const Node& node, const CompileContext& c) {
  const Tensor* w = c.Constant(node.input(1));
  if (w == nullptr || w->dtype() != DType::kF32 || w->size() == 0) return nullptr;
  if (!c.Is(node.input(0), DType::kF32) || !c.Is(node.input(2), DType::kF32)) return nullptr;
  if (c.SumsInOrder()) return nullptr;
  auto shape = ConvShapeOf(node, w->shape());
  if (!shape) return nullptr;
  return std::make_unique<ConvKernel>(*w, std::move(*shape), node.input(2).valid(),
                                      MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

}  // namespace octavo::runtime
