// MaxPool and AveragePool of f32 images, and, where channels stand last between two Transposes (channels_last.h), GlobalAveragePool and means of channels.
// The bits are the interpreter's.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "octavo/ir/interpret/window.h"
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

// A spatial dim and the window along it.
struct Axis {
  int64_t in = 1, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0, out = 1;

  int64_t Reach() const { return (kernel - 1) * dilation; }
  int64_t At(int64_t o, int64_t k) const { return o * stride - before + k * dilation; }
  bool Has(int64_t at) const { return at >= 0 && at < in; }
  // Places of window `o` inside the input, or inside the padded one.
  int64_t Count(int64_t o, bool padded) const {
    int64_t count = 0;
    for (int64_t k = 0; k < kernel; ++k) count += padded ? At(o, k) < in + after : Has(At(o, k));
    return count;
  }
};

// Rows of the result of one image, a band at a time. What they read is laid out anew: rows and columns that windows `stride` apart read lie together,
// with what changes nothing around them. Each place of the window is then one operation over all of the band.
class Bands {
 public:
  Bands(kernels::Arch arch, const Node& node, const ir::interpret::Window& w, int64_t channels)
      : arch_(arch), max_(node.op == Op::kMaxPool), channels_(channels) {
    for (size_t d = 0, to = 3 - w.dims(); d < w.dims(); ++d, ++to)
      axes_[to] = {w.in[d], w.kernel[d], w.stride[d], w.dilation[d], w.before[d], w.after[d], w.out[d]};
    padded_ = node.attrs.Int("count_include_pad", 0) != 0;
    const auto& [depth, high, wide] = axes_;
    columns_ = (wide.out + wide.Reach() / wide.stride) * channels;
    rows_ = std::clamp<int64_t>((kRoom / columns_ / wide.stride - high.Reach()) / high.stride, 1, high.out);
    kept_ = rows_ + high.Reach() / high.stride;
    for (int64_t o = 0; o < wide.out; ++o) counts_.push_back(wide.Count(o, padded_));
  }

  // False: the interpreter is as fast, since results are few, or a window or what is around the image is far larger than the image.
  static bool Serves(const ir::interpret::Window& w, int64_t channels) {
    bool serves = w.dims() <= 3 && w.out_size * channels >= 16;
    for (size_t d = 0; d < w.dims(); ++d) {
      const int64_t most = w.in[d] + 64;
      for (const int64_t size : {w.kernel[d], w.stride[d], w.dilation[d], w.before[d], w.after[d]})
        serves = serves && size >= 0 && size <= most;
    }
    return serves;
  }
  int64_t count() const { return axes_[0].out * ((axes_[1].out + rows_ - 1) / rows_); }  // of an image
  int64_t Work() const { return rows_ * columns_ * axes_[0].kernel * axes_[1].kernel * axes_[2].kernel; }

  void Run(const float* image, int64_t band, float* y) const {
    const auto& [depth, high, wide] = axes_;
    const int64_t bands = count() / depth.out, slice = band / bands, first = band % bands * rows_;
    const int64_t rows = std::min(rows_, high.out - first), part = kept_ * columns_;
    const TaskScratch scratch(static_cast<size_t>(high.stride * wide.stride * part + (rows_ + 1) * columns_) *
                              sizeof(float));
    auto* laid = reinterpret_cast<float*>(scratch.data());
    float *sums = laid + high.stride * wide.stride * part, *divisors = sums + rows_ * columns_;
    std::fill_n(sums, rows * columns_, Nothing());
    for (int64_t k = 0; k < depth.kernel; ++k) {
      const int64_t d = depth.At(slice, k);
      if (!depth.Has(d)) continue;
      Lay(image + d * high.in * wide.in * channels_, high.At(first, 0), laid);
      for (int64_t i = 0; i < high.kernel * wide.kernel; ++i) {
        const int64_t down = i / wide.kernel * high.dilation, right = i % wide.kernel * wide.dilation;
        const float* x = laid + (down % high.stride * wide.stride + right % wide.stride) * part +
                         down / high.stride * columns_ + right / wide.stride * channels_;
        kernels::Binary(arch_, max_ ? kernels::BinaryOp::kMax : kernels::BinaryOp::kAdd, {x, 0, 1}, {sums, 0, 1}, sums,
                        0, 0, 1, (rows - 1) * columns_ + wide.out * channels_);
      }
    }
    y += (slice * high.out + first) * wide.out * channels_;
    for (int64_t r = 0; r < rows; ++r, sums += columns_, y += wide.out * channels_) {
      if (max_) {
        std::copy_n(sums, wide.out * channels_, y);
        continue;
      }
      const int64_t above = depth.Count(slice, padded_) * high.Count(first + r, padded_);
      for (int64_t o = 0; o < wide.out; ++o) {
        const int64_t all = std::max<int64_t>(above * counts_[static_cast<size_t>(o)], 1);
        std::fill_n(divisors + o * channels_, channels_, static_cast<float>(all));
      }
      kernels::Binary(arch_, kernels::BinaryOp::kDiv, {sums, 0, 1}, {divisors, 0, 1}, y, 0, 0, 1, wide.out * channels_);
    }
  }

 private:
  static constexpr int64_t kRoom = 16384;  // floats that a band reads: they stay in a cache

  float Nothing() const { return max_ ? -std::numeric_limits<float>::infinity() : 0.0f; }

  // [row % stride][column % stride][row / stride][column / stride, channels], from row `top` of the image on.
  void Lay(const float* image, int64_t top, float* to) const {
    const auto& [depth, high, wide] = axes_;
    for (int64_t i = 0; i < kept_ * high.stride; ++i) {
      for (int64_t rest = 0; rest < wide.stride; ++rest) {
        float* row = to + ((i % high.stride * wide.stride + rest) * kept_ + i / high.stride) * columns_;
        const int64_t count = columns_ / channels_;
        const auto column = [&](int64_t at) {  // the first whose pixel is `at` or behind it
          const int64_t way = at + wide.before - rest;
          return std::clamp<int64_t>(way <= 0 ? 0 : (way - 1) / wide.stride + 1, 0, count);
        };
        const int64_t begin = high.Has(top + i) ? column(0) : count, end = high.Has(top + i) ? column(wide.in) : count;
        std::fill_n(row, begin * channels_, Nothing());
        std::fill(row + end * channels_, row + columns_, Nothing());
        const float* from = image + ((top + i) * wide.in + begin * wide.stride + rest - wide.before) * channels_;
        if (begin == end) continue;
        if (wide.stride == 1) {
          std::copy_n(from, (end - begin) * channels_, row + begin * channels_);
          continue;
        }
        for (int64_t o = begin; o < end; ++o, from += wide.stride * channels_)
          std::copy_n(from, channels_, row + o * channels_);
      }
    }
  }

  kernels::Arch arch_;
  bool max_, padded_ = false;
  std::array<Axis, 3> axes_;  // those that the image lacks have one place
  int64_t channels_, columns_ = 0, rows_ = 0,
                     kept_ = 0;  // floats of a row that is read; rows of a band, and of a part of those that it reads
  std::vector<int64_t> counts_;  // of the places of each window along a row
};

class PoolKernel : public Kernel {
 public:
  PoolKernel(const CompileContext& c, const Node& node, bool channels_last, KernelPtr fallback)
      : arch_(c.arch), graph_(c.graph), node_(node), channels_last_(channels_last), fallback_(std::move(fallback)) {
    needs.Typed(0, DType::kF32);
  }
  std::string name() const override {
    return "pool " + std::string(ir::InfoOf(node_.op).name) + " " + std::string(Name(arch_));
  }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    Shape shape = x.shape();
    if (shape.size() < 3 || x.size() == 0) return fallback_->Run(call);
    if (channels_last_) std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
    const int64_t lines = shape[0] * shape[1], channels = channels_last_ ? shape[1] : 1, images = lines / channels;
    if (node_.op == Op::kGlobalAveragePool || node_.op == Op::kReduceMean)
      return Global(call, images, x.size() / images / channels, channels);
    const ir::interpret::Call asked{graph_, node_, call.in, {}, {}};
    const auto w = MakeWindow(asked, shape, node_.attrs.Ints("kernel_shape"), node_.attrs.Int("ceil_mode", 0) != 0);
    if (!w || w->out_size == 0 || !Bands::Serves(*w, channels)) return fallback_->Run(call);  // it says why
    Shape result(w->out);
    result.insert(channels_last_ ? result.end() : result.begin(), shape[1]);
    result.insert(result.begin(), shape[0]);
    float* y = call.Allocate(0, DType::kF32, result).mutable_as<float>().data();
    const Bands bands(arch_, node_, *w, channels);
    const int64_t all = images * bands.count();
    const int64_t parts = PartsOf(all, std::max<int64_t>(1, kElementGrain / bands.Work()), call.threads->count());
    call.threads->For(parts, [&](int64_t part) {
      const Part p = PartOf(all, parts, part, 1);
      for (int64_t i = p.begin; i < p.end; ++i) {
        const int64_t image = i / bands.count();
        bands.Run(x.as<float>().data() + image * w->in_size * channels, i % bands.count(),
                  y + image * w->out_size * channels);
      }
    });
    return {};
  }

 private:
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
  bool channels_last_;
  KernelPtr fallback_;
};

}  // namespace

KernelPtr MakePool(const Node& node, const CompileContext& c) {
  if (!c.Is(node.input(0), DType::kF32) || node.outputs.size() != 1) return nullptr;
  return std::make_unique<PoolKernel>(c, node, false, MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

Made MakeTurnedPool(ir::NodeId id, const CompileContext& c) {
  const Node& node = c.graph.node(id);
  const std::optional<Turned> turned = TurnedOf(c.graph, id);
  if (!turned || !c.Is(node.input(0), DType::kF32) || node.outputs.size() != 1) return {};
  Made made = MadeOf(*turned, c.graph, id);
  made.kernel = std::make_unique<PoolKernel>(c, node, true, InterpretedOf(made, c, node.op));
  return made;
}

}  // namespace octavo::runtime
