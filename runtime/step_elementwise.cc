// f32 element-wise ops. Binary ones where the operands broadcast like rows (equal shapes, a scalar, or a vector or block of
// trailing dims against all leading ones); anything else is the interpreter's.
#include <algorithm>
#include <map>
#include <optional>

#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class UnaryKernel : public Kernel {
 public:
  UnaryKernel(kernels::Arch arch, kernels::UnaryOp op, std::string name)
      : arch_(arch), op_(op), name_(std::move(name)) {
    needs.Typed(0, DType::kF32);
  }
  std::string name() const override { return name_; }
  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    float* y = call.Allocate(0, DType::kF32, x.shape()).mutable_as<float>().data();
    const float* from = x.as<float>().data();
    const int64_t parts = PartsOf(x.size(), kElementGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(x.size(), parts, i, 64);
      kernels::Unary(arch_, op_, from + p.begin, y + p.begin, p.end - p.begin);
    });
    return {};
  }

 private:
  kernels::Arch arch_;
  kernels::UnaryOp op_;
  std::string name_;
};

// How `shape` lies in the rows x cols view of `full`.
std::optional<kernels::Operand> RowOperand(const Tensor& t, const Shape& full, int64_t cols) {
  const int64_t n = t.size();
  const float* data = t.as<float>().data();
  if (t.shape() == full) return kernels::Operand{data, cols, 1};
  if (n == 1) return kernels::Operand{data, 0, 0};
  // Trailing dims equal to those of `full`, everything before them 1.
  Shape s = t.shape();
  while (!s.empty() && s.front() == 1) s.erase(s.begin());
  if (s.size() <= full.size() && std::equal(s.rbegin(), s.rend(), full.rbegin()) && n == cols) {
    return kernels::Operand{data, 0, 1};
  }
  // All dims but the last equal, the last 1: one value a row.
  Shape row = full;
  if (!row.empty()) row.back() = 1;
  if (t.shape() == row && !full.empty() && full.back() == cols) return kernels::Operand{data, 1, 0};
  return std::nullopt;
}

class BinaryKernel : public Kernel {
 public:
  BinaryKernel(kernels::Arch arch, kernels::BinaryOp op, const Graph& graph, ir::NodeId node, std::string name)
      : arch_(arch), op_(op), fallback_(MakeInterpreted(graph, node)), name_(std::move(name)) {
    needs.Typed(0, DType::kF32), needs.Typed(1, DType::kF32);
  }
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const Tensor& a = call.T(0);
    const Tensor& b = call.T(1);
    const Tensor& big = a.size() >= b.size() ? a : b;
    const Tensor& small = a.size() >= b.size() ? b : a;
    const Shape full = big.shape();
    // Columns: the trailing block of the smaller operand, or the last axis.
    int64_t cols = full.empty() ? 1 : full.back();
    if (small.shape() != full && small.size() > 1 && small.size() != LeadingRows(full)) cols = small.size();
    const auto oa = RowOperand(a, full, cols);
    const auto ob = RowOperand(b, full, cols);
    if (!oa || !ob || a.rank() > big.rank() || b.rank() > big.rank() || cols == 0 || big.size() % cols != 0) {
      return fallback_->Run(call);
    }
    float* y = call.Allocate(0, DType::kF32, full).mutable_as<float>().data();
    const int64_t rows = big.size() / cols;
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / cols), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, 1);
      kernels::Binary(arch_, op_, *oa, *ob, y, cols, p.begin, p.end, cols);
    });
    return {};
  }

 private:
  kernels::Arch arch_;
  kernels::BinaryOp op_;
  KernelPtr fallback_;
  std::string name_;
};

}  // namespace

std::optional<kernels::UnaryOp> UnaryOf(const Node& node) {
  static const std::map<Op, kernels::UnaryOp> table = {{Op::kAbs, kernels::UnaryOp::kAbs},
                                                       {Op::kErf, kernels::UnaryOp::kErf},
                                                       {Op::kExp, kernels::UnaryOp::kExp},
                                                       {Op::kNeg, kernels::UnaryOp::kNeg},
                                                       {Op::kRelu, kernels::UnaryOp::kRelu},
                                                       {Op::kSigmoid, kernels::UnaryOp::kSigmoid},
                                                       {Op::kSqrt, kernels::UnaryOp::kSqrt},
                                                       {Op::kTanh, kernels::UnaryOp::kTanh},
                                                       {Op::kReciprocal, kernels::UnaryOp::kReciprocal}};
  if (node.op == Op::kGelu) {
    return node.attrs.Str("approximate", "none") == "tanh" ? kernels::UnaryOp::kGeluTanh : kernels::UnaryOp::kGelu;
  }
  const auto it = table.find(node.op);
  return it == table.end() ? std::nullopt : std::optional(it->second);
}

std::optional<kernels::BinaryOp> BinaryOf(Op op) {
  switch (op) {
    case Op::kAdd:
      return kernels::BinaryOp::kAdd;
    case Op::kSub:
      return kernels::BinaryOp::kSub;
    case Op::kMul:
      return kernels::BinaryOp::kMul;
    case Op::kDiv:
      return kernels::BinaryOp::kDiv;
    default:
      return std::nullopt;  // Max and Min leave the sign of zero and NaN to the interpreter's definition
  }
}

KernelPtr MakeElementwise(const Node& node, const CompileContext& c) {
  for (ValueId v : node.inputs) {
    if (!v.valid() || c.graph.value(v).type.dtype != DType::kF32) return nullptr;
  }
  const std::string name = std::string(ir::InfoOf(node.op).name) + " " + std::string(Name(c.arch));
  if (node.inputs.size() == 1) {
    if (const auto op = UnaryOf(node)) return std::make_unique<UnaryKernel>(c.arch, *op, name);
  }
  if (node.inputs.size() == 2) {
    if (const auto op = BinaryOf(node.op)) {
      const ir::NodeId id = c.graph.value(node.output()).producer;
      return std::make_unique<BinaryKernel>(c.arch, *op, c.graph, id, name);
    }
  }
  return nullptr;
}

}  // namespace octavo::runtime
