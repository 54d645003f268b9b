// What every evaluator of the interpreter sees, and the table that finds it.
#ifndef OCTAVO_IR_INTERPRET_CALL_H_
#define OCTAVO_IR_INTERPRET_CALL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/memory.h"

namespace octavo::ir::interpret {

// Runs a graph of a node (a branch, a body) on values in the order of its inputs.
using RunBody = std::function<Result<std::vector<RtValue>>(const Graph& body, std::span<const RtValue> inputs)>;

// One evaluation of one node. An evaluator's error states only the reason; EvalNode adds op, node name and operands.
struct Call {
  const Graph& graph;
  const Node& node;
  std::span<const RtValue> in;
  std::vector<RtValue> out;  // one per output slot
  const Interrupted& interrupted;
  const RunBody* run_body = nullptr;  // instead of RunGraph

  bool Has(size_t i) const { return i < in.size() && in[i].tensor.defined(); }
  const Tensor& T(size_t i) const { return in[i].tensor; }
  bool Wants(size_t i) const { return i < out.size() && node.output(i).valid(); }
  void Return(Tensor t, size_t i = 0) {
    if (i < out.size()) out[i].tensor = std::move(t);
  }
  int64_t Int(std::string_view name, int64_t fallback) const { return node.attrs.Int(name, fallback); }
  float Float(std::string_view name, float fallback) const { return node.attrs.Float(name, fallback); }
};

using Evaluator = Status (*)(Call&);

#define OCTAVO_OP(Name, domain, min_in, max_in, min_out, max_out) \
  +1  // NOLINT(bugprone-macro-parentheses): a term of the sum below
inline constexpr size_t kOpCount = 0
#include "octavo/ir/ops.def"
    ;
#undef OCTAVO_OP

class Table {
 public:
  void Set(Op op, Evaluator f) { entries_[static_cast<size_t>(op)] = f; }
  Evaluator Find(Op op) const { return entries_[static_cast<size_t>(op)]; }

 private:
  std::array<Evaluator, kOpCount> entries_{};
};

// One per family; interpret.cc calls them all.
void RegisterUnary(Table& table);
void RegisterBinary(Table& table);
void RegisterLogic(Table& table);
void RegisterVariadic(Table& table);
void RegisterCast(Table& table);
void RegisterViews(Table& table);
void RegisterMovement(Table& table);
void RegisterGather(Table& table);
void RegisterScatter(Table& table);
void RegisterGenerate(Table& table);
void RegisterPad(Table& table);
void RegisterResize(Table& table);
void RegisterReduce(Table& table);
void RegisterArg(Table& table);
void RegisterSoftmax(Table& table);
void RegisterMatMul(Table& table);
void RegisterEinsum(Table& table);
void RegisterConv(Table& table);
void RegisterPool(Table& table);
void RegisterNorm(Table& table);
void RegisterAttention(Table& table);
void RegisterRotary(Table& table);
void RegisterQuantize(Table& table);
void RegisterQuantizedProducts(Table& table);
void RegisterControl(Table& table);
void RegisterOctavo(Table& table);
void RegisterUnfold(Table& table);
void RegisterLp(Table& table);
void RegisterGrid(Table& table);
void RegisterRegions(Table& table);
void RegisterOrder(Table& table);
void RegisterRecurrent(Table& table);
void RegisterState(Table& table);
void RegisterFlex(Table& table);
void RegisterSignal(Table& table);
void RegisterLoss(Table& table);
void RegisterRandom(Table& table);
void RegisterText(Table& table);
void RegisterTables(Table& table);
void RegisterTraining(Table& table);

const Table& Evaluators();

// Runs a graph on values in the order of its inputs; the integers behind quantized values travel along.
Result<std::vector<RtValue>> RunGraph(const Graph& graph, std::span<const RtValue> inputs,
                                      const InterpretOptions& options = {});

// EvalNode of If, Loop and Scan whose graphs are run by `run_body`.
Result<std::vector<RtValue>> EvalControl(const Graph& graph, const Node& node, std::span<const RtValue> inputs,
                                         const Interrupted& interrupted, const RunBody& run_body);

// --- quant_form.cc ---------------------------------------------------------------------------------------------
// Carries the integers of the operands to the outputs of a view op (interpret.h lists them).
void CarryQuantForms(Call& call, Evaluator evaluate);
// quant_form.cc: calls `evaluate`, with strings replaced by numbers and 4-bit elements by bytes where the op only moves
// elements.
Status EvaluateMoved(Call& call, Evaluator evaluate);

// --- helpers ---------------------------------------------------------------------------------------------------
// Fails for a negative dim and for more than 64 GB (2^36 bytes). A tensor without elements must be one that memory allows
// with 1 for each 0, so that loops over its other dims end.
Status CheckShape(DType dtype, std::span<const int64_t> shape);
Result<Tensor> Alloc(DType dtype, Shape shape);
Result<Tensor> AllocZeros(DType dtype, Shape shape);
// Memory of the evaluation at hand beside tensors (indices, sums, texts), charged before it is taken and until the node is done.
// Throws OutOfMemory.
void ChargeWork(size_t bytes);
template <typename T>
std::vector<T> WorkVector(int64_t n) {
  ChargeWork(static_cast<size_t>(n) * sizeof(T));
  return std::vector<T>(static_cast<size_t>(n));
}
// While it stands, ChargeWork charges to it.
class WorkScope {
 public:
  WorkScope();
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  friend void ChargeWork(size_t bytes);
  WorkScope* before_;
  std::vector<MemoryCharge> charges_;
};
// -rank..rank-1 to 0..rank-1.
Result<int64_t> Axis(int64_t axis, int64_t rank);
// As Axis for each; fails for duplicates. Sorted ascending if `sort`.
Result<std::vector<int64_t>> Axes(std::vector<int64_t> axes, int64_t rank, bool sort = true);
// All elements of an integer tensor; fails for other dtypes. `what` names the operand in the sentence.
Result<std::vector<int64_t>> IntsOf(const Tensor& t, std::string_view what);
// The one element of a tensor of one element.
Result<int64_t> IntOf(const Tensor& t, std::string_view what);
// Row-major strides in elements.
std::vector<int64_t> StridesOf(std::span<const int64_t> shape);
// An attribute that holds a TensorProto.DataType. Fails for types octavo does not have.
Result<DType> TypeAttr(const Call& call, std::string_view name, DType fallback);
// "f32[2,3]"
std::string Describe(const Tensor& t);
// Product of shape[from..to).
inline int64_t Count(const Shape& shape, size_t from, size_t to) {
  return ElementCount(std::span(shape).subspan(from, to - from));
}
// Plain conversion of the elements (values out of range: see cast.cc), fp8 saturating.
Result<Tensor> CastTo(const Tensor& t, DType to, bool saturate = true);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_CALL_H_
