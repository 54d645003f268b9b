// LinearBlocked: weights are packed once at compile time; a run splits columns, so that each weight is read by one thread.
#include <algorithm>

#include "octavo/kernels/blocked/blocked.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class BlockedKernel : public Kernel {
 public:
  BlockedKernel(kernels::Arch arch, kernels::PackedBlocked w, std::vector<float> bias, std::string name)
      : arch_(arch), w_(std::move(w)), bias_(std::move(bias)), name_(std::move(name)) {}
  std::string name() const override { return name_; }

  Status Run(StepCall& call) const override {
    const Tensor& x = call.T(0);
    if (x.rank() < 1 || x.shape().back() != w_.k()) {
      return ir::Fail("the activation has shape {}, the weights expect {} columns", ir::ToString(x.shape()), w_.k());
    }
    Shape shape = x.shape();
    shape.back() = w_.n();
    const int64_t rows = LeadingRows(shape);
    const kernels::BlockedArgs args{.x = x.as<float>().data(),
                                    .x_stride = w_.k(),
                                    .w = &w_,
                                    .bias = bias_.empty() ? nullptr : bias_.data(),
                                    .y = call.Allocate(0, DType::kF32, shape).mutable_as<float>().data(),
                                    .y_stride = w_.n()};
    const int threads = call.threads->count();
    const int64_t blocks = kernels::ColumnBlocks(w_.n());
    const int64_t column_parts = PartsOf(blocks, 1, threads);
    const int64_t row_parts = column_parts >= threads ? 1 : PartsOf(rows, 48, threads);
    const size_t scratch = kernels::BlockedScratchBytes(arch_, w_);
    call.threads->For(row_parts * column_parts, [&](int64_t task) {
      const Part r = PartOf(rows, row_parts, task / column_parts, 6);
      const Part c = PartOf(blocks, column_parts, task % column_parts, 1);
      if (r.begin < r.end && c.begin < c.end) {
        kernels::GemmBlocked(arch_, args, {r.begin, r.end}, {c.begin, c.end}, ThreadScratch(scratch));
      }
    });
    return {};
  }

 private:
  kernels::Arch arch_;
  kernels::PackedBlocked w_;
  std::vector<float> bias_;  // empty: none
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
  std::string name = "linear_blocked" + std::to_string(packed->bits()) + " " + std::string(Name(c.arch));
  return std::make_unique<BlockedKernel>(c.arch, std::move(*packed),
                                         bias != nullptr ? bias->ToFloats() : std::vector<float>{}, std::move(name));
}

}  // namespace octavo::runtime
