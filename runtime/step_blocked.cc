// LinearBlocked: weights are packed once at compile time; a run splits columns, so that each weight is read by one thread. With
// x_bits rows become codes first, once for all threads.
#include <algorithm>
#include <format>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/catalog.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class BlockedKernel : public Kernel {
 public:
  BlockedKernel(kernels::Arch arch, kernels::PackedBlocked w, std::vector<float> bias, bool codes, std::string name)
      : arch_(arch), w_(std::move(w)), bias_(std::move(bias)), codes_(codes), name_(std::move(name)) {
    needs.EndsIn(0, DType::kF32, {w_.k()});
  }
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    Shape shape = x.shape();
    shape.back() = w_.n();
    const int64_t rows = LeadingRows(shape);
    const float* from = x.as<float>().data();
    float* y = call.Allocate(0, DType::kF32, shape).mutable_as<float>().data();
    if (codes_) {
      RunCodes(call, from, rows, y);
    } else {
      RunFloats(call, from, rows, y);
    }
    return {};
  }

 private:
  // task(rows, column blocks), on all threads.
  template <class Task>
  void ForParts(StepCall& call, int64_t rows, const Task& task) const {
    const int threads = call.threads->count();
    const int64_t blocks = kernels::ColumnBlocks(w_.n());
    const int64_t column_parts = PartsOf(blocks, 1, threads);
    const int64_t row_parts = column_parts >= threads ? 1 : PartsOf(rows, 48, threads);
    call.threads->For(row_parts * column_parts, [&](int64_t i) {
      const Part r = PartOf(rows, row_parts, i / column_parts, 12);  // of both kernels' tiles
      const Part c = PartOf(blocks, column_parts, i % column_parts, 1);
      if (r.begin < r.end && c.begin < c.end) task(kernels::Range{r.begin, r.end}, kernels::Range{c.begin, c.end});
    });
  }

  const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

  void RunFloats(StepCall& call, const float* x, int64_t rows, float* y) const {
    const kernels::BlockedArgs args{.x = x, .x_stride = w_.k(), .w = &w_, .bias = bias(), .y = y, .y_stride = w_.n()};
    const size_t scratch = kernels::BlockedScratchBytes(arch_, w_);
    ForParts(call, rows, [&](kernels::Range r, kernels::Range c) {
      kernels::GemmBlocked(arch_, args, r, c, TaskScratch(scratch).data());
    });
  }

  // Codes of some rows at a time: 4 MB of them, not those of a whole prompt.
  void RunCodes(StepCall& call, const float* x, int64_t rows, float* y) const {
    constexpr int64_t kBytes = 4 << 20, kRowsOfKernel = 96;
    const int64_t at_once =
        std::max(kRowsOfKernel, kBytes / kernels::BlockedRowBytes(w_) / kRowsOfKernel * kRowsOfKernel);
    const int64_t bytes = std::min(at_once, rows) * kernels::BlockedRowBytes(w_);
    auto* codes = reinterpret_cast<uint8_t*>(call.Scratch(static_cast<size_t>(bytes)));
    for (int64_t first = 0; first < rows; first += at_once) {
      RunSomeCodes(call, x + first * w_.k(), std::min(at_once, rows - first), codes, y + first * w_.n());
    }
  }

  void RunSomeCodes(StepCall& call, const float* x, int64_t rows, uint8_t* codes, float* y) const {
    const int64_t row_bytes = kernels::BlockedRowBytes(w_);
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / w_.k()), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part r = PartOf(rows, parts, i, 1);
      kernels::QuantizeBlocks(arch_, w_, x + r.begin * w_.k(), w_.k(), r.end - r.begin, codes + r.begin * row_bytes);
    });
    const kernels::BlockedInt8Args args{.x = codes, .w = &w_, .bias = bias(), .y = y, .y_stride = w_.n()};
    ForParts(call, rows, [&](kernels::Range r, kernels::Range c) {
      kernels::GemmBlockedInt8(arch_, args, r, c, TaskScratch(kernels::kBlockedInt8ScratchBytes).data());
    });
  }

  kernels::Arch arch_;
  kernels::PackedBlocked w_;
  std::vector<float> bias_;  // empty: none
  bool codes_;
  std::string name_;
};

}  // namespace

KernelPtr MakeBlocked(const Node& node, const CompileContext& c) {
  const Tensor* w = c.Constant(node.input(1));
  const Tensor* scale = c.Constant(node.input(2));
  const Tensor* zero = c.Constant(node.input(3));
  const Tensor* bias = c.Constant(node.input(4));
  const bool given =
      w != nullptr && scale != nullptr && (zero != nullptr || !node.input(3)) && (bias != nullptr || !node.input(4));
  if (!given || w->rank() != 2 || c.graph.value(node.input(0)).type.dtype != DType::kF32) return nullptr;
  const bool transposed = node.attrs.Int("transposed", 0) != 0;
  const int64_t k = w->shape()[transposed ? 1 : 0], n = w->shape()[transposed ? 0 : 1];
  const int64_t block = node.attrs.Int("block_size", 0);
  if (block <= 0) return nullptr;
  const int64_t blocks = (k + block - 1) / block;
  const Shape wanted = transposed ? Shape{n, blocks} : Shape{blocks, n};
  if (scale->dtype() != DType::kF32 || scale->shape() != wanted) return nullptr;
  if (zero != nullptr && (zero->dtype() != w->dtype() || zero->shape() != wanted)) return nullptr;
  if (bias != nullptr && (bias->dtype() != DType::kF32 || bias->size() != n)) return nullptr;
  auto packed = kernels::PackBlocked({.data = w->data(),
                                      .dtype = w->dtype(),
                                      .k = k,
                                      .n = n,
                                      .block = block,
                                      .transposed = transposed,
                                      .scale = scale->as<float>().data(),
                                      .zero_point = zero != nullptr ? zero->data() : nullptr});
  if (!packed) return nullptr;
  const int64_t x_bits = node.attrs.Int("x_bits", 0);
  if (!kernels::ChooseBlocked({.w = w->dtype(), .block = block, .x_bits = x_bits}, c.arch).ok()) return nullptr;
  std::string name = std::format("linear_blocked{}{} {}", packed->bits(), x_bits == 8 ? "_int8" : "", Name(c.arch));
  return std::make_unique<BlockedKernel>(c.arch, std::move(*packed),
                                         bias != nullptr ? bias->ToFloats() : std::vector<float>{}, x_bits == 8,
                                         std::move(name));
}

}  // namespace octavo::runtime
