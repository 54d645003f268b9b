#ifndef OCTAVO_RUNTIME_COMPILE_H_
#define OCTAVO_RUNTIME_COMPILE_H_

#include <expected>
#include <vector>

#include "octavo/runtime/tail.h"

namespace octavo::runtime {

// The kernel for a node on c.arch; null: the interpreter's.
KernelPtr MakeKernel(const Node& node, const CompileContext& c);

// The same with what its step does beside it: products of the same activation, and what stands behind them (tail.h).
Made MakeKernel(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains);

// The windows of a convolution whose Concat is `id` (ir/unfold.h), in one step; no kernel: it is none. step_unfold.cc
Made MakeUnfold(ir::NodeId id, const CompileContext& c);

// Why neither a kernel nor the interpreter runs it.
std::unexpected<ir::Error> NothingRuns(const Graph& graph, const Node& node);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_COMPILE_H_
