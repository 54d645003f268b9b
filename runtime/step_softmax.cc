// Softmax and LogSoftmax of f32 along any axis. Along another than the last, some columns are copied to rows and back.
#include <algorithm>
#include <cmath>

#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/kernels/softmax/softmax.h"
#include "octavo/quant/numeric/math.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kRowGrain = 16;       // rows of a few hundred floats: about 5 us, what a task must be worth
constexpr int64_t kColumnsAtOnce = 16;  // a line of the cache

class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(const Node& node, const CompileContext& c)
      : arch_(c.arch),
        log_(node.op == Op::kLogSoftmax),
        axis_(node.attrs.Int("axis", -1)),
        fallback_(MakeInterpreted(c.graph, c.graph.value(node.output()).producer)) {
    needs.Typed(0, DType::kF32);
  }
  std::string name() const override { return (log_ ? "log_softmax " : "softmax ") + std::string(Name(arch_)); }
  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const Shape shape = x.shape();
    const auto rank = static_cast<int64_t>(shape.size());
    if (rank == 0 || axis_ < -rank || axis_ >= rank) return fallback_->Run(call);  // it says why
    const auto axis = static_cast<size_t>(axis_ < 0 ? axis_ + rank : axis_);
    const int64_t n = shape[axis];
    int64_t inner = 1;
    for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    float* y = call.Allocate(0, DType::kF32, shape).mutable_as<float>().data();
    if (x.size() == 0) return {};
    const float* from = x.as<float>().data();
    const int64_t outer = x.size() / n / inner;
    if (inner == 1) {
      const int64_t parts = PartsOf(outer, kRowGrain, call.threads->count());
      call.threads->For(parts, [&](int64_t i) {
        const Part p = PartOf(outer, parts, i, 1);
        Rows(from + p.begin * n, y + p.begin * n, p.end - p.begin, n);
      });
      return {};
    }
    const int64_t blocks = (inner + kColumnsAtOnce - 1) / kColumnsAtOnce;
    call.threads->For(outer * blocks, [&](int64_t i) {
      const int64_t column = i % blocks * kColumnsAtOnce, at = i / blocks * n * inner + column;
      Columns(from + at, y + at, std::min(kColumnsAtOnce, inner - column), n, inner);
    });
    return {};
  }

 private:
  void Rows(const float* x, float* y, int64_t rows, int64_t n) const {
    if (!log_) return kernels::SoftmaxRows(arch_, x, n, y, n, rows, n);
    std::vector<float> e(static_cast<size_t>(n));
    for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
      const float top = quant::RowMax(x, n);
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] - top;
      kernels::Unary(arch_, kernels::UnaryOp::kExp, y, e.data(), n);
      const float log_sum = std::log(quant::Sum16(e.data(), n));
      for (int64_t i = 0; i < n; ++i) y[i] -= log_sum;
    }
  }
  void Columns(const float* x, float* y, int64_t columns, int64_t n, int64_t stride) const {
    std::vector<float> rows(static_cast<size_t>(columns * n));
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < columns; ++c) rows[static_cast<size_t>(c * n + j)] = x[j * stride + c];
    }
    Rows(rows.data(), rows.data(), columns, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < columns; ++c) y[j * stride + c] = rows[static_cast<size_t>(c * n + j)];
    }
  }

  kernels::Arch arch_;
  bool log_;
  int64_t axis_;
  KernelPtr fallback_;
};

}  // namespace

KernelPtr MakeSoftmax(const Node& node, const CompileContext& c) {
  return c.Is(node.input(0), DType::kF32) ? std::make_unique<SoftmaxKernel>(node, c) : nullptr;
}

}  // namespace octavo::runtime
