// f32 element-wise ops. Binary ones where one operand has the result's shape and the other has it along some axes that follow each other (a scalar, a
// vector of columns, a number for each row, one for each channel of an image); anything else is the interpreter's.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class UnaryKernel : public Kernel {
 public:
  UnaryKernel(kernels::Arch arch, UnaryCall unary, std::string name)
      : arch_(arch), unary_(unary), name_(std::move(name)) {
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
      kernels::Unary(arch_, unary_.op, from + p.begin, y + p.begin, p.end - p.begin, unary_.params);
    });
    return {};
  }

 private:
  kernels::Arch arch_;
  UnaryCall unary_;
  std::string name_;
};

// Where the smaller operand lies in the larger one, seen as rows of `cols` elements: of `period` rows each reads the next element, or, by column, all of
// them read the same `cols` elements, and the next `period` rows the next ones.
struct Spread {
  int64_t cols = 1, period = 1;
  bool by_column = false;
};

std::optional<Spread> SpreadOf(const Shape& small, const Shape& full) {
  if (small.size() > full.size()) return std::nullopt;
  const size_t absent = full.size() - small.size();
  const auto size = [&](size_t axis) { return axis < absent ? 1 : small[axis - absent]; };
  size_t first = 0, end = full.size();
  while (first < end && size(first) == 1) ++first;
  while (end > first && size(end - 1) == 1) --end;
  Spread s;
  for (size_t axis = end; axis < full.size(); ++axis) s.cols *= full[axis];
  size_t columns = end;  // where the axes that it has begin, from the back
  while (columns > first && size(columns - 1) == full[columns - 1]) s.period *= full[--columns];
  if (columns == first && s.cols > 1) return s;
  if (s.cols > 1) return std::nullopt;
  size_t rows = columns;  // where those that it repeats begin
  s.cols = s.period, s.period = 1, s.by_column = first < end;
  while (rows > 0 && size(rows - 1) == 1) s.period *= full[--rows];
  for (size_t axis = 0; axis < rows; ++axis) {
    if (size(axis) != full[axis]) return std::nullopt;
  }
  return s;
}

class BinaryKernel : public Kernel {
 public:
  BinaryKernel(kernels::Arch arch, kernels::BinaryOp op, const Graph& graph, ir::NodeId node, std::string name)
      : arch_(arch), op_(op), fallback_(MakeInterpreted(graph, node)), name_(std::move(name)) {
    needs.Typed(0, DType::kF32), needs.Typed(1, DType::kF32);
  }
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const Tensor &a = call.T(0), &b = call.T(1);
    const bool a_is_full = a.size() >= b.size();
    const Tensor &big = a_is_full ? a : b, &small = a_is_full ? b : a;
    const Shape full = big.shape();
    const auto spread = SpreadOf(small.shape(), full);
    if (!spread || big.size() == 0) return fallback_->Run(call);
    float* y = call.Allocate(0, DType::kF32, full).mutable_as<float>().data();
    const float *whole = big.as<float>().data(), *other = small.as<float>().data();
    const auto run = [&](kernels::Operand lines, kernels::Operand others, float* to, int64_t rows, int64_t cols) {
      kernels::Binary(arch_, op_, a_is_full ? lines : others, a_is_full ? others : lines, to, cols, 0, rows, cols);
    };
    if (const bool one = small.size() == 1; one || small.size() == big.size()) {
      const int64_t parts = PartsOf(big.size(), kElementGrain, call.threads->count());
      call.threads->For(parts, [&](int64_t i) {
        const Part p = PartOf(big.size(), parts, i, 64);
        run({whole + p.begin, 0, 1}, {other + (one ? 0 : p.begin), 0, !one}, y + p.begin, 1, p.end - p.begin);
      });
      return {};
    }
    const int64_t cols = spread->cols, period = spread->period, rows = big.size() / cols;
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / cols), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, 1);
      for (int64_t r = p.begin; r < p.end;) {
        const int64_t from = r % period, n = std::min(p.end - r, period - from);
        const kernels::Operand columns{other + r / period * cols, 0, 1}, numbers{other + from, 1, 0};
        run({whole + r * cols, cols, 1}, spread->by_column ? columns : numbers, y + r * cols, n, cols);
        r += n;
      }
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

// Clip's bounds, which are constants of one element or absent.
std::optional<UnaryCall> ClipOf(const Node& node, const CompileContext& c) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  UnaryCall clip{kernels::UnaryOp::kClip, {.a = -kInf, .b = kInf}};
  for (const size_t slot : {1, 2}) {
    if (!node.input(slot).valid()) continue;
    const Tensor* bound = c.Constant(node.input(slot));
    if (bound == nullptr || bound->dtype() != DType::kF32 || bound->size() != 1) return std::nullopt;
    (slot == 1 ? clip.params.a : clip.params.b) = ScalarF32(*bound);
  }
  return clip;
}

std::optional<UnaryCall> UnaryOf(const Node& node, const CompileContext& c) {
  using kernels::UnaryOp;
  static const std::map<Op, UnaryOp> table = {
      {Op::kAbs, UnaryOp::kAbs},   {Op::kErf, UnaryOp::kErf},         {Op::kExp, UnaryOp::kExp},
      {Op::kNeg, UnaryOp::kNeg},   {Op::kRelu, UnaryOp::kRelu},       {Op::kHardSwish, UnaryOp::kHardSwish},
      {Op::kSqrt, UnaryOp::kSqrt}, {Op::kSigmoid, UnaryOp::kSigmoid}, {Op::kReciprocal, UnaryOp::kReciprocal},
      {Op::kTanh, UnaryOp::kTanh}};
  const auto number = [&](std::string_view name, float otherwise) { return node.attrs.Float(name, otherwise); };
  switch (node.op) {
    case Op::kClip:
      return ClipOf(node, c);
    case Op::kElu:
      return UnaryCall{UnaryOp::kElu, {.a = number("alpha", 1.0f)}};
    case Op::kGelu:
      return UnaryCall{node.attrs.Str("approximate", "none") == "tanh" ? UnaryOp::kGeluTanh : UnaryOp::kGelu};
    case Op::kHardSigmoid:
      return UnaryCall{UnaryOp::kHardSigmoid, {.a = number("alpha", 0.2f), .b = number("beta", 0.5f)}};
    case Op::kLeakyRelu:
      return UnaryCall{UnaryOp::kLeakyRelu, {.a = number("alpha", 0.01f)}};
    case Op::kSwish:
      return number("alpha", 1.0f) == 1.0f ? std::optional(UnaryCall{UnaryOp::kSilu}) : std::nullopt;
    default:
      const auto it = table.find(node.op);
      return it == table.end() ? std::nullopt : std::optional(UnaryCall{it->second});
  }
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
  const std::string name = std::string(ir::InfoOf(node.op).name) + " " + std::string(Name(c.arch));
  if (node.inputs.empty() || !c.Is(node.input(0), DType::kF32)) return nullptr;
  if (const auto unary = UnaryOf(node, c)) return std::make_unique<UnaryKernel>(c.arch, *unary, name);
  for (ValueId v : node.inputs) {
    if (!v.valid() || !c.Is(v, DType::kF32)) return nullptr;
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
