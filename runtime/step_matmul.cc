// f32 MatMul: with packed weights where the right operand is a constant matrix, batched otherwise. A MatMul
// whose operands both carry integers (DequantizeLinear behind views) means the exact integer product and goes to the
// interpreter; fused graphs have none left.
#include <algorithm>

#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

// The rows and columns of one call at most.
constexpr int64_t kRowsPerCall = 128;
constexpr int64_t kColumnsPerCall = 512;

using Parts = std::vector<kernels::PackedF32>;  // of the columns

class WeightMatMul : public Kernel {
 public:
  // The columns of the weights in parts.
  WeightMatMul(std::shared_ptr<const Parts> parts, KernelPtr fallback)
      : parts_(std::move(parts)), fallback_(std::move(fallback)) {
    for (const kernels::PackedF32& w : *parts_) first_.push_back(columns_), columns_ += w.n();
    needs.EndsIn(0, DType::kF32, {(*parts_)[0].k()});
    by_rows = true;
  }
  std::string name() const override { return "matmul_f32"; }
  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    if (x.rank() < 2 || (call.in[0].quant && call.in[1].quant)) return fallback_->Run(call);
    Shape shape = x.shape();
    shape.back() = columns_;
    const int64_t rows = LeadingRows(shape);
    float* y = call.Allocate(0, DType::kF32, shape).mutable_as<float>().data();
    const auto parts = static_cast<int64_t>(parts_->size());
    call.threads->For((rows + kRowsPerCall - 1) / kRowsPerCall * parts, [&](int64_t i) {
      const auto part = static_cast<size_t>(i % parts);
      const int64_t row = i / parts * kRowsPerCall;
      const kernels::GemmF32Args args{.x = x.as<float>().data(),
                                      .x_stride = x.shape().back(),
                                      .w = &(*parts_)[part],
                                      .bias = nullptr,
                                      .y = y + first_[part],
                                      .y_stride = columns_};
      kernels::GemmF32(args, {row, std::min(rows, row + kRowsPerCall)});
    });
    return {};
  }

 private:
  std::shared_ptr<const Parts> parts_;
  std::vector<int64_t> first_;  // column of each
  int64_t columns_ = 0;
  KernelPtr fallback_;
};

// Matrices of a product's result, and which of each operand one of them is made of, where operands are repeated along axes in which they have one.
class Batches {
 public:
  Batches(const Shape& a, const Shape& b) : a_(Leading(a, b)), b_(Leading(b, a)) {
    for (size_t axis = 0; axis < a_.size(); ++axis) {
      fit_ = fit_ && (a_[axis] == b_[axis] || a_[axis] == 1 || b_[axis] == 1);
      shape_.push_back(a_[axis] == 1 ? b_[axis] : a_[axis]);
    }
  }
  bool fit() const { return fit_; }
  const Shape& shape() const { return shape_; }  // without rows and columns
  std::pair<int64_t, int64_t> Of(int64_t i) const {
    std::pair<int64_t, int64_t> at{0, 0};
    for (size_t axis = shape_.size(), step_a = 1, step_b = 1; axis-- > 0; i /= shape_[axis]) {
      const int64_t index = i % shape_[axis];
      at.first += a_[axis] == 1 ? 0 : index * static_cast<int64_t>(step_a);
      at.second += b_[axis] == 1 ? 0 : index * static_cast<int64_t>(step_b);
      step_a *= static_cast<size_t>(a_[axis]), step_b *= static_cast<size_t>(b_[axis]);
    }
    return at;
  }

 private:
  // All axes but rows and columns, as many as the other has.
  static Shape Leading(const Shape& s, const Shape& other) {
    Shape leading(std::max(s.size(), other.size()) - s.size(), 1);
    leading.insert(leading.end(), s.begin(), s.end() - 2);
    return leading;
  }

  Shape a_, b_, shape_;
  bool fit_ = true;
};

class BatchedMatMul : public Kernel {
 public:
  explicit BatchedMatMul(KernelPtr fallback) : fallback_(std::move(fallback)) {
    needs.Typed(0, DType::kF32), needs.Typed(1, DType::kF32);
  }
  std::string name() const override { return "matmul_f32_batched"; }
  Status Execute(StepCall& call) const override {
    const Tensor &a = call.T(0), &b = call.T(1);
    const bool integers = call.in[0].quant && call.in[1].quant;
    const bool plain = !integers && a.rank() >= 2 && b.rank() >= 2 && a.size() > 0 && b.size() > 0 &&
                       a.shape().back() == b.shape()[b.shape().size() - 2];
    if (!plain) return fallback_->Run(call);
    const Batches batches(a.shape(), b.shape());
    if (!batches.fit()) return fallback_->Run(call);  // it says why
    kernels::MatMulF32Args args;
    args.m = a.shape()[a.shape().size() - 2], args.k = a.shape().back(), args.n = b.shape().back();
    args.a_row = args.k, args.b_row = args.n, args.c_row = args.n;
    Shape shape = batches.shape();
    shape.insert(shape.end(), {args.m, args.n});
    args.c = call.Allocate(0, DType::kF32, shape).mutable_as<float>().data();
    const float *of_a = a.as<float>().data(), *of_b = b.as<float>().data();
    if (b.size() == args.k * args.n) {  // one matrix for all: products of rows
      const int64_t rows = a.size() / args.k;
      call.threads->For((rows + kRowsPerCall - 1) / kRowsPerCall, [&](int64_t i) {
        const int64_t row = i * kRowsPerCall;
        kernels::MatMulF32Args some = args;
        some.m = std::min(kRowsPerCall, rows - row), some.a = of_a + row * args.k, some.b = of_b,
        some.c = args.c + row * args.n;
        kernels::MatMulF32(some, {0, 1});
      });
      return {};
    }
    call.threads->For(ir::ElementCount(batches.shape()), [&](int64_t i) {
      const auto [at_a, at_b] = batches.Of(i);
      kernels::MatMulF32Args one = args;
      one.a = of_a + at_a * args.m * args.k;
      one.b = of_b + at_b * args.k * args.n;
      one.c = args.c + i * args.m * args.n;
      kernels::MatMulF32(one, {0, 1});
    });
    return {};
  }

 private:
  KernelPtr fallback_;
};

// Parts of about equal width, whole vectors each.
std::optional<Parts> PackColumns(const Tensor& w) {
  const int64_t k = w.shape()[0], n = w.shape()[1], count = (n + kColumnsPerCall - 1) / kColumnsPerCall;
  Parts parts;
  for (int64_t i = 0; i < count; ++i) {
    const Part part = PartOf(n, count, i, 16);
    auto packed = kernels::PackWeightsF32(w.as<float>().data() + part.begin, k, part.end - part.begin, false, n);
    if (!packed) return {};
    parts.push_back(std::move(*packed));
  }
  return parts;
}

}  // namespace

KernelPtr MakeMatMul(const Node& node, const CompileContext& c) {
  for (ValueId v : node.inputs) {
    if (c.graph.value(v).type.dtype != DType::kF32) return nullptr;
  }
  const ir::NodeId id = c.graph.value(node.output()).producer;
  const Tensor* w = c.Constant(node.input(1));
  if (w != nullptr && w->rank() == 2 && w->size() > 0) {
    if (auto parts = PackedOnce<Parts>(c, {w}, "", [w] { return PackColumns(*w); })) {
      return std::make_unique<WeightMatMul>(std::move(parts), MakeInterpreted(c.graph, id));
    }
  }
  return std::make_unique<BatchedMatMul>(MakeInterpreted(c.graph, id));
}

}  // namespace octavo::runtime
