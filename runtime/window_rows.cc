#include "octavo/runtime/window_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace octavo::runtime {

namespace {

WindowRows::Sizes InThree(const std::vector<int64_t>& v, int64_t otherwise) {
  WindowRows::Sizes sizes;
  sizes.fill(otherwise);
  std::ranges::copy_backward(v, sizes.end());
  return sizes;
}

}  // namespace

WindowRows::WindowRows(const ir::Windows& w, DType dtype, Tensor padding)
    : dims_(w.kernel.size()),
      dtype_(dtype),
      kernel_(InThree(w.kernel, 1)),
      strides_(InThree(w.strides, 1)),
      dilations_(InThree(w.dilations, 1)),
      before_(InThree(w.before, 0)),
      after_(InThree(w.after, 0)),
      element_(quant::BitsOf(dtype) / 8),
      padding_(std::move(padding)) {}

std::optional<WindowRows::Image> WindowRows::Of(const Shape& x) const {
  constexpr double kMostElements = 1e12;
  if (x.size() != dims_ + 2) return {};
  Image image{.in = InThree({x.begin() + 1, x.end() - 1}, 1), .out = {}, .images = x.front(), .channels = x.back()};
  double elements = static_cast<double>(x.front()) * static_cast<double>(x.back());
  for (size_t d = 0; d < kernel_.size(); ++d) {
    const int64_t room = image.in[d] + before_[d] + after_[d] - dilations_[d] * (kernel_[d] - 1);
    image.out[d] = room <= 0 ? 0 : (room - 1) / strides_[d] + 1;
    elements *= static_cast<double>(image.out[d]) * static_cast<double>(kernel_[d]);
  }
  return elements > kMostElements ? std::nullopt : std::optional(image);
}

Shape WindowRows::Result(const Image& image, int64_t last) const {
  Shape shape{image.images};
  shape.insert(shape.end(), image.out.end() - static_cast<int64_t>(dims_), image.out.end());
  shape.push_back(last);
  return shape;
}

void WindowRows::Make(const Image& image, const std::byte* x, int64_t begin, int64_t end, std::byte* to) const {
  const Sizes& out = image.out;
  const int64_t pixel = image.channels * element_, row = positions() * pixel;
  const int64_t of_image = image.in[0] * image.in[1] * image.in[2] * pixel;
  for (int64_t at = begin; at < end;) {
    const int64_t line = at / out[2], first = at % out[2], n = std::min(end - at, out[2] - first);
    Line(image, x + line / (out[0] * out[1]) * of_image, {line / out[1] % out[0], line % out[1], first}, first + n, to);
    at += n, to += n * row;
  }
}

// The windows of one line of the result, from `at` on.
void WindowRows::Line(const Image& image, const std::byte* x, Sizes at, int64_t end, std::byte* to) const {
  const Sizes& in = image.in;
  const int64_t pixel = image.channels * element_, run = kernel_[2] * pixel;
  for (; at[2] < end; ++at[2]) {
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
void WindowRows::Run(const std::byte* x, int64_t size, int64_t first, int64_t pixel, std::byte* to) const {
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

void WindowRows::Fill(std::byte* to, int64_t bytes) const {
  if (!padding_.defined()) return (void)std::memset(to, 0, static_cast<size_t>(bytes));
  if (element_ == 1) return (void)std::memset(to, std::to_integer<int>(padding_.data()[0]), static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes; i += element_) std::memcpy(to + i, padding_.data(), static_cast<size_t>(element_));
}

std::optional<WindowRows> WindowRowsOf(const CompileContext& c, const ir::Unfold& unfold) {
  const DType dtype = c.graph.value(unfold.x).type.dtype;
  const Tensor* padding = c.Constant(unfold.padding);
  if (unfold.windows.kernel.size() > WindowRows::Sizes().size() || c.Constant(unfold.x) != nullptr) return {};
  if (dtype == DType::kUndefined || dtype == DType::kString || quant::BitsOf(dtype) < 8) return {};
  if (unfold.padding.valid() && (padding == nullptr || padding->size() != 1 || padding->dtype() != dtype)) return {};
  return WindowRows(unfold.windows, dtype, padding == nullptr ? Tensor() : *padding);
}

namespace {

// Memory of the step as that of a tensor.
class Borrowed final : public ir::Buffer {
 public:
  Borrowed(std::byte* data, size_t size) { data_ = data, size_ = size; }
};

// Rows of a step's results and of its operands.
class SomeRows final : public StepCall {
 public:
  SomeRows(StepCall& all, const WindowRows& windows, const WindowRows::Image& image)
      : all_(all), windows_(windows), image_(image), own_(all.in.begin(), all.in.end()) {
    in = own_, out.resize(all.out.size()), threads = all.threads, interrupted = all.interrupted;
  }
  void At(int64_t begin) { begin_ = begin; }

  Tensor& Allocate(size_t i, DType dtype, Shape shape) override {
    if (begin_ == 0) all_.Allocate(i, dtype, windows_.Result(image_, shape.back()));
    return out[i].tensor = RowsOf(all_.out[i].tensor, begin_, shape[0]);
  }
  std::byte* Scratch(size_t bytes) override {
    if (!scratch_ || most_ < bytes) scratch_.reset(), scratch_.emplace(bytes), most_ = bytes;
    return scratch_->data();
  }
  // [n, last] of [..., last]
  static Tensor RowsOf(const Tensor& t, int64_t begin, int64_t n) {
    const int64_t last = t.shape().back();
    const auto offset = static_cast<size_t>(t.data() - t.buffer()->data()) +
                        static_cast<size_t>(begin * last) * static_cast<size_t>(quant::BitsOf(t.dtype()) / 8);
    return Tensor::View(t.dtype(), {n, last}, t.buffer(), offset);
  }

 private:
  StepCall& all_;
  const WindowRows& windows_;
  const WindowRows::Image& image_;
  std::vector<RtValue> own_;
  int64_t begin_ = 0;
  std::optional<TaskScratch> scratch_ = {};
  size_t most_ = 0;  // bytes of it
};

class InWindows : public Kernel {
 public:
  // `rows`: operands that have a row for each window.
  InWindows(KernelPtr product, WindowRows windows, std::vector<size_t> rows, int64_t channels)
      : product_(std::move(product)), windows_(std::move(windows)), rows_(std::move(rows)) {
    needs.EndsIn(0, windows_.dtype(), {channels});
  }
  std::string name() const override { return "unfold+" + product_->name(); }

  Status Execute(StepCall& call) const override {
    constexpr int64_t kBytes = 4 << 20, kUnit = 768,
                      kBytesOfTask = 65536;  // the unit: whole tiles of every kernel on several threads
    const Tensor x = call.T(0);
    const auto image = windows_.Of(x.shape());
    if (!image)
      return ir::Fail(
          "a convolution over {} axes cannot read an image {}: give it {} axes, and fewer than 10^12 windows",
          windows_.dims(), ir::ToString(x.shape()), windows_.dims() + 2);
    const int64_t all = image->rows(), k = windows_.positions() * image->channels;
    for (const size_t i : rows_) {
      const Tensor& t = call.T(i);
      if (t.rank() == 0 || t.size() != all * t.shape().back() || t.buffer() == nullptr || call.in[i].quant != nullptr)
        return ir::Fail("operand {} of a convolution of codes has the shape {}, not one row for each of {} windows", i,
                        ir::ToString(t.shape()), all);
    }
    const int64_t row = k * quant::BitsOf(x.dtype()) / 8;
    const int64_t at_once = std::max<int64_t>(1, kBytes / std::max<int64_t>(1, row * kUnit)) * kUnit;
    const auto bytes = static_cast<size_t>(std::min(all, at_once) * row);
    const auto windows = std::make_shared<Borrowed>(call.Scratch(bytes), bytes);
    SomeRows some(call, windows_, *image);
    for (int64_t begin = 0; begin == 0 || begin < all; begin += at_once) {
      const int64_t n = std::min(at_once, all - begin);
      some.At(begin);
      some.in[0] = {Tensor::View(x.dtype(), {n, k}, windows, 0), nullptr};
      for (const size_t i : rows_) some.in[i].tensor = SomeRows::RowsOf(call.T(i), begin, n);
      const int64_t parts =
          PartsOf(n, std::max<int64_t>(1, kBytesOfTask / std::max<int64_t>(1, row)), call.threads->count());
      call.threads->For(parts, [&](int64_t task) {
        const Part p = PartOf(n, parts, task, 1);
        if (p.begin < p.end)
          windows_.Make(*image, x.data(), begin + p.begin, begin + p.end,
                        some.in[0].tensor.mutable_data() + p.begin * row);
      });
      OCTAVO_TRY_STATUS(product_->Run(some));
    }
    return {};
  }

 private:
  KernelPtr product_;
  WindowRows windows_;
  std::vector<size_t> rows_;
};

}  // namespace

void TakeWindows(const CompileContext& c, Made& made) {
  const Graph& g = c.graph;
  if (made.kernel == nullptr || !made.kernel->by_rows || !made.kernel->apart.empty() ||
      made.kernel->otherwise != nullptr)
    return;
  const ValueId v = made.inputs[0];
  const std::optional<ir::Unfold> unfold = ir::UnfoldAt(g, v);
  if (!unfold || g.IsGraphOutput(v)) return;
  const bool alone = std::ranges::all_of(
      g.value(v).uses, [&](const ir::Use& use) { return std::ranges::contains(made.nodes, use.node); });
  const auto& shape = g.value(unfold->x).type.shape;
  if (!alone || !shape || !shape->back().is_number()) return;
  for (const ValueId y : made.outputs) {  // rows as they are, not by heads
    const auto& made_shape = y.valid() ? g.value(y).type.shape : std::nullopt;
    if (!made_shape || made_shape->size() != shape->size()) return;
  }
  std::vector<size_t> rows;
  for (size_t i = 1; i < made.inputs.size(); ++i) {
    if (made.inputs[i] == v) return;
    if (made.inputs[i].valid() && c.Constant(made.inputs[i]) == nullptr) rows.push_back(i);
  }
  std::optional<WindowRows> windows = WindowRowsOf(c, *unfold);
  if (!windows) return;
  made.kernel =
      std::make_unique<InWindows>(std::move(made.kernel), std::move(*windows), std::move(rows), shape->back().number());
  made.inputs[0] = unfold->x;
  made.nodes.insert(made.nodes.end(), unfold->nodes.begin(), unfold->nodes.end());
}

}  // namespace octavo::runtime
