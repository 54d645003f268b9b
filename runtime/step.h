// Inside of the runtime: one step of a compiled model, and the factories that find a kernel for a node.
#ifndef OCTAVO_RUNTIME_STEP_H_
#define OCTAVO_RUNTIME_STEP_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/runtime/needs.h"
#include "octavo/runtime/threads.h"

namespace octavo::runtime {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Result;
using ir::RtValue;
using ir::Shape;
using ir::Status;
using ir::Tensor;
using ir::ValueId;

// What a step sees while it runs.
class StepCall {
 public:
  virtual ~StepCall() = default;
  std::span<RtValue> in;
  std::vector<RtValue> out;  // one per output slot
  const Threads* threads = nullptr;
  ir::Interrupted interrupted;   // for the interpreter's loops
  bool interpreted = false;      // set by the interpreter's step, on which others fall back
  bool rooms = false;            // the run has caches with room for rows to come (room.h)
  std::vector<StepCall*> apart;  // of a call for the rows of several runs: theirs, for Kernel::apart

  const Tensor& T(size_t i) const { return in[i].tensor; }
  bool Has(size_t i) const { return i < in.size() && in[i].tensor.defined(); }
  // Input `i` to be overwritten, where this step is the last to read it and nothing else holds its memory; else undefined.
  Tensor Take(size_t i) { return in[i].tensor.sole() && in[i].quant == nullptr ? std::move(in[i].tensor) : Tensor(); }
  // Memory for output `i`: from the plan where there is one. The step must write every element.
  virtual Tensor& Allocate(size_t i, DType dtype, Shape shape) = 0;
  // Memory for all threads of this step, until it ends; once a step. A piece of one task is TaskScratch.
  virtual std::byte* Scratch(size_t bytes) = 0;
};

struct CompileContext;

// What serves a step. It reads memory by what it expects, so the only way in compares first.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Operands that are not what `needs` says go to `otherwise`, or are an error, and so are outputs of the graph, and what the interpreter makes, that are not what
  // inference says.
  Status Run(StepCall& call) const;
  virtual std::string name() const = 0;
  // Whether the operands, of several runs those of each, are what `needs` says.
  Status Fits(const StepCall& call) const;
  // Whether the results are what inference says, where nobody behind asks.
  Status Made(const StepCall& call) const;

  Needs needs;  // Execute relies on them
  // Serves operands that have a meaning although no kernel has them (a mask that widens the scores); null: there are none.
  std::unique_ptr<Kernel> otherwise = nullptr;
  // Reads operands that lie in a room, by its strides; other kernels are given dense copies.
  bool takes_rooms = false;
  // Each row of the results depends on the same row of the operands alone, and its bits do not depend on how many there are; operands that are
  // no constants have their rows along all dims but the last. Rows of several runs may be given at once (together.h).
  bool by_rows = false;
  // Operands of which each of these runs has its own (a cache, tables of its positions), and what is made of them: read and made in StepCall::apart.
  std::vector<size_t> apart = {};

 protected:
  virtual Status Execute(StepCall& call) const = 0;

 private:
  friend void Expect(Kernel& kernel, const CompileContext& c, std::span<const ValueId> in,
                     std::span<const ValueId> out);
  bool leaves_ = false;  // an output is one of the graph
};

// What a factory may use to decide and to prepare: constants are known, weights can be packed.
struct CompileOptions;  // model.h
struct CompileContext {
  const Graph& graph;
  const std::vector<RtValue>& constants;  // by value index; undefined: not constant
  kernels::Arch arch;
  const CompileOptions* options = nullptr;  // of the model, for the graphs of control flow; null: those are interpreted

  const Tensor* Constant(ValueId v) const {
    return v.valid() && constants[v.index].tensor.defined() ? &constants[v.index].tensor : nullptr;
  }
  // Absent, or of this type. Kernels read memory by what they expect, so they must ask.
  bool Is(ValueId v, DType t) const { return !v.valid() || graph.value(v).type.dtype == t; }
  // oneDNN sums in another order on another CPU: who calibrates (rows_alone) with the plain forms wants the same ranges everywhere.
  bool SumsInOrder() const;
};

// The types of a step's operands and outputs, by slot, as inference knows them, join what the kernel needs and makes.
void Expect(Kernel& kernel, const CompileContext& c, std::span<const ValueId> in, std::span<const ValueId> out);

// Null where no kernel serves the node (the interpreter then does). An error only for what can never run.
using KernelPtr = std::unique_ptr<Kernel>;
#define OCTAVO_STEP(Name, Make) KernelPtr Make(const Node& node, const CompileContext& c);
#include "octavo/runtime/steps.def"
#undef OCTAVO_STEP
KernelPtr MakeLinearFp8(const Node& node,
                        const CompileContext& c);  // QuantizedLinear and QuantizedQkv with fp8 operands
KernelPtr MakeElementwise(const Node& node, const CompileContext& c);  // f32 unary and binary
KernelPtr MakeInterpreted(const Graph& graph, ir::NodeId node);
inline std::string InterpreterOf(Op op) { return "interpreter " + std::string(ir::InfoOf(op).name); }

// What MakeElementwise has for a node of this kind over f32. Beside its first input a unary one reads constants alone.
struct UnaryCall {
  kernels::UnaryOp op;
  kernels::UnaryParams params = {};
};
std::optional<UnaryCall> UnaryOf(const Node& node, const CompileContext& c);
std::optional<kernels::BinaryOp> BinaryOf(Op op);

constexpr int64_t kElementGrain = 16384;  // elements of a task, about 5 us for an element-wise operation

inline float ScalarF32(const Tensor& t) { return static_cast<float>(t.GetDouble(0)); }
inline int32_t ScalarInt(const Tensor& t) { return static_cast<int32_t>(t.GetInt(0)); }
// Product of all dims but the last.
inline int64_t LeadingRows(const Shape& s) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < s.size(); ++i) rows *= s[i];
  return rows;
}
// Rows [begin, end) of part `i` of `parts`, each a multiple of `unit` but the last.
struct Part {
  int64_t begin, end;
};
inline Part PartOf(int64_t n, int64_t parts, int64_t i, int64_t unit) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t a = units * i / parts * unit;
  const int64_t b = units * (i + 1) / parts * unit;
  return {a < n ? a : n, b < n ? b : n};
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_H_
