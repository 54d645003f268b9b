// Windows of a convolution as rows (ir/unfold.h) in one pass over what they read, instead of a copy for each Slice and another by the Concat.
#include <algorithm>
#include <array>
#include <cstring>

#include "octavo/ir/unfold.h"
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/compile.h"

namespace octavo::runtime {

namespace {

constexpr size_t kDims = 3;
using Sizes = std::array<int64_t, kDims>;

// Of up to three spatial axes; those that are not there are 1.
Sizes InThree(const std::vector<int64_t>& v, int64_t otherwise) {
  Sizes sizes;
  sizes.fill(otherwise);
  std::ranges::copy_backward(v, sizes.end());
  return sizes;
}

class UnfoldKernel : public Kernel {
 public:
  UnfoldKernel(const ir::Windows& w, DType dtype, Tensor padding, KernelPtr fallback)
      : dims_(w.kernel.size()),
        kernel_(InThree(w.kernel, 1)),
        strides_(InThree(w.strides, 1)),
        dilations_(InThree(w.dilations, 1)),
        before_(InThree(w.before, 0)),
        after_(InThree(w.after, 0)),
        element_(quant::BitsOf(dtype) / 8),
        padding_(std::move(padding)),
        fallback_(std::move(fallback)) {
    needs.Typed(0, dtype);
  }
  std::string name() const override { return "unfold"; }

  Status Execute(StepCall& call) const override {
    constexpr double kMostElements = 1e12;
    constexpr int64_t kBytesOfTask = 65536;
    const Tensor& x = call.T(0);
    if (x.shape().size() != dims_ + 2 || call.in[0].quant != nullptr)
      return fallback_->Run(call);  // it says why, or keeps them
    const Sizes in = InThree({x.shape().begin() + 1, x.shape().end() - 1}, 1);
    Sizes out;
    double elements = static_cast<double>(x.shape().front()) * static_cast<double>(x.shape().back());
    for (size_t d = 0; d < kDims; ++d) {
      const int64_t room = in[d] + before_[d] + after_[d] - dilations_[d] * (kernel_[d] - 1);
      out[d] = room <= 0 ? 0 : (room - 1) / strides_[d] + 1;
      elements *= static_cast<double>(out[d]) * static_cast<double>(kernel_[d]);
    }
    if (elements > kMostElements) return fallback_->Run(call);
    Shape result = x.shape();
    std::copy(out.end() - static_cast<int64_t>(dims_), out.end(), result.begin() + 1);
    result.back() *= kernel_[0] * kernel_[1] * kernel_[2];
    Tensor& y = call.Allocate(0, x.dtype(), result);
    const int64_t pixel = x.shape().back() * element_, row = result.back() * element_;
    const int64_t lines = x.shape().front() * out[0] * out[1];
    if (y.size() == 0) return {};
    const int64_t parts = PartsOf(lines, std::max<int64_t>(1, kBytesOfTask / (row * out[2])), call.threads->count());
    std::byte* to = y.mutable_data();
    call.threads->For(parts, [&](int64_t task) {
      const Part p = PartOf(lines, parts, task, 1);
      for (int64_t i = p.begin; i < p.end; ++i)
        Line(x.data() + i / (out[0] * out[1]) * in[0] * in[1] * in[2] * pixel, in, pixel,
             {i / out[1] % out[0], i % out[1], 0}, out[2], to + i * out[2] * row);
    });
    return {};
  }

 private:
  // The windows of one line of the result, the first of which is `at`, one behind the other.
  void Line(const std::byte* x, const Sizes& in, int64_t pixel, Sizes at, int64_t count, std::byte* to) const {
    const int64_t run = kernel_[2] * pixel;
    for (; at[2] < count; ++at[2]) {
      for (int64_t i = 0; i < kernel_[0]; ++i) {
        const int64_t z = at[0] * strides_[0] - before_[0] + i * dilations_[0];
        for (int64_t j = 0; j < kernel_[1]; ++j, to += run) {
          const int64_t y = at[1] * strides_[1] - before_[1] + j * dilations_[1];
          if (z < 0 || z >= in[0] || y < 0 || y >= in[1]) {
            Fill(to, run);
          } else {
            Run(x + (z * in[1] + y) * in[2] * pixel, in[2], at[2] * strides_[2] - before_[2], pixel, to);
          }
        }
      }
    }
  }

  // Positions along the last axis, from `first` of the `size` elements of `x` on.
  void Run(const std::byte* x, int64_t size, int64_t first, int64_t pixel, std::byte* to) const {
    if (dilations_[2] != 1) {
      for (int64_t k = 0; k < kernel_[2]; ++k, to += pixel) {
        const int64_t at = first + k * dilations_[2];
        at >= 0 && at < size ? void(std::memcpy(to, x + at * pixel, static_cast<size_t>(pixel))) : Fill(to, pixel);
      }
      return;
    }
    const int64_t begin = std::clamp<int64_t>(-first, 0, kernel_[2]);
    const int64_t end = std::clamp<int64_t>(size - first, begin, kernel_[2]);
    Fill(to, begin * pixel);
    if (begin < end)
      std::memcpy(to + begin * pixel, x + (first + begin) * pixel, static_cast<size_t>((end - begin) * pixel));
    Fill(to + end * pixel, (kernel_[2] - end) * pixel);
  }

  void Fill(std::byte* to, int64_t bytes) const {
    if (!padding_.defined()) return (void)std::memset(to, 0, static_cast<size_t>(bytes));
    if (element_ == 1)
      return (void)std::memset(to, std::to_integer<int>(padding_.data()[0]), static_cast<size_t>(bytes));
    for (int64_t i = 0; i < bytes; i += element_) std::memcpy(to + i, padding_.data(), static_cast<size_t>(element_));
  }

  size_t dims_;
  Sizes kernel_, strides_, dilations_, before_, after_;
  int64_t element_;  // bytes
  Tensor padding_;   // undefined: 0
  KernelPtr fallback_;
};

}  // namespace

Made MakeUnfold(ir::NodeId id, const CompileContext& c) {
  const ValueId y = c.graph.node(id).output();
  const std::optional<ir::Unfold> unfold = ir::UnfoldAt(c.graph, y);
  if (!unfold || unfold->windows.kernel.size() > kDims || c.Constant(unfold->x) != nullptr) return {};
  const DType dtype = c.graph.value(unfold->x).type.dtype;
  const Tensor* padding = c.Constant(unfold->padding);
  if (dtype == DType::kUndefined || dtype == DType::kString || quant::BitsOf(dtype) < 8) return {};
  if (unfold->padding.valid() && (padding == nullptr || padding->size() != 1 || padding->dtype() != dtype)) return {};
  Made made{.nodes = unfold->nodes, .inputs = {unfold->x}, .outputs = {y}};
  made.kernel = std::make_unique<UnfoldKernel>(unfold->windows, dtype, padding == nullptr ? Tensor() : *padding,
                                               InterpretedOf(made, c, Op::kConcat));
  return made;
}

}  // namespace octavo::runtime
