// MaxPool, AveragePool, GlobalAveragePool and means of channels of f32 images whose channels stand last, between two Transposes (channels_last.h): a window
// is some rows of channels. The bits are the interpreter's.
#include <algorithm>
#include <limits>

#include "octavo/ir/interpret/window.h"
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class PoolKernel : public Kernel {
 public:
  PoolKernel(const CompileContext& c, const Node& node, KernelPtr fallback)
      : arch_(c.arch), graph_(c.graph), node_(node), fallback_(std::move(fallback)) {
    needs.Typed(0, DType::kF32);
  }
  std::string name() const override {
    return "pool " + std::string(ir::InfoOf(node_.op).name) + " " + std::string(Name(arch_));
  }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    Shape shape = x.shape();
    if (shape.size() < 3 || x.size() == 0) return fallback_->Run(call);
    const int64_t images = shape[0], channels = shape.back();
    std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
    if (node_.op == Op::kGlobalAveragePool || node_.op == Op::kReduceMean)
      return Global(call, images, x.size() / images / channels, channels);
    const ir::interpret::Call asked{graph_, node_, call.in, {}, {}};
    const auto w = MakeWindow(asked, shape, node_.attrs.Ints("kernel_shape"), node_.attrs.Int("ceil_mode", 0) != 0);
    if (!w || w->out_size == 0) return fallback_->Run(call);  // it says why
    Shape result = {images};
    result.insert(result.end(), w->out.begin(), w->out.end());
    result.push_back(channels);
    float* y = call.Allocate(0, DType::kF32, result).mutable_as<float>().data();
    const int64_t pixels = images * w->out_size;
    const int64_t parts =
        PartsOf(pixels, std::max<int64_t>(1, kElementGrain / channels / w->kernel_size), call.threads->count());
    call.threads->For(parts, [&](int64_t part) {
      const Part p = PartOf(pixels, parts, part, 1);
      ir::interpret::WindowWalker walker(*w);
      for (int64_t i = p.begin; i < p.end; ++i) {
        const float* image = x.as<float>().data() + i / w->out_size * w->in_size * channels;
        Pixel(walker, i % w->out_size, image, channels, y + i * channels);
      }
    });
    return {};
  }

 private:
  void Pixel(ir::interpret::WindowWalker& walker, int64_t at, const float* image, int64_t channels, float* y) const {
    const bool max = node_.op == Op::kMaxPool;
    int64_t count = 0;
    walker.ForInside(at, [&](int64_t, int64_t from) {
      const float* x = image + from * channels;
      if (count++ == 0) {
        std::copy_n(x, channels, y);
      } else if (max) {
        kernels::Binary(arch_, kernels::BinaryOp::kMax, {x, 0, 1}, {y, 0, 1}, y, 0, 0, 1, channels);
      } else {
        kernels::Binary(arch_, kernels::BinaryOp::kAdd, {y, 0, 1}, {x, 0, 1}, y, 0, 0, 1, channels);
      }
    });
    if (count == 0) return (void)std::fill_n(y, channels, max ? -std::numeric_limits<float>::infinity() : 0.0f);
    if (max) return;
    if (node_.attrs.Int("count_include_pad", 0) != 0) count = walker.CountInPadded(at);
    const auto all = static_cast<float>(count);
    kernels::Binary(arch_, kernels::BinaryOp::kDiv, {y, 0, 1}, {&all, 0, 0}, y, 0, 0, 1, channels);
  }

  // Sums in 16 lanes of pixels and then of lanes, as quant::Sum16 does for each channel.
  Status Global(StepCall& call, int64_t images, int64_t pixels, int64_t channels) const {
    constexpr int64_t kLanes = 16;
    Shape result(call.T(0).shape().size(), 1);
    result.front() = images, result.back() = channels;
    float* y = call.Allocate(0, DType::kF32, result).mutable_as<float>().data();
    call.threads->For(images, [&](int64_t image) {
      const float* x = call.T(0).as<float>().data() + image * pixels * channels;
      const TaskScratch scratch(static_cast<size_t>(kLanes * channels) * sizeof(float));
      auto* lanes = reinterpret_cast<float*>(scratch.data());
      std::fill_n(lanes, kLanes * channels, 0.0f);
      const auto add = [&](float* to, const float* from, int64_t n) {
        kernels::Binary(arch_, kernels::BinaryOp::kAdd, {to, 0, 1}, {from, 0, 1}, to, 0, 0, 1, n);
      };
      for (int64_t p = 0; p < pixels; p += kLanes)
        add(lanes, x + p * channels, std::min(kLanes, pixels - p) * channels);
      for (int64_t half = kLanes / 2; half > 0; half /= 2) add(lanes, lanes + half * channels, half * channels);
      const auto all = static_cast<float>(pixels);
      kernels::Binary(arch_, kernels::BinaryOp::kDiv, {lanes, 0, 1}, {&all, 0, 0}, y + image * channels, 0, 0, 1,
                      channels);
    });
    return {};
  }

  kernels::Arch arch_;
  const Graph& graph_;
  const Node& node_;
  KernelPtr fallback_;
};

}  // namespace

Made MakeTurnedPool(ir::NodeId id, const CompileContext& c) {
  const Node& node = c.graph.node(id);
  const std::optional<Turned> turned = TurnedOf(c.graph, id);
  if (!turned || !c.Is(node.input(0), DType::kF32) || node.outputs.size() != 1) return {};
  Made made = MadeOf(*turned, c.graph, id);
  made.kernel = std::make_unique<PoolKernel>(c, node, InterpretedOf(made, c, node.op));
  return made;
}

}  // namespace octavo::runtime
