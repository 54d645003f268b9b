#ifndef OCTAVO_RUNTIME_COMPILE_H_
#define OCTAVO_RUNTIME_COMPILE_H_

#include <expected>
#include <vector>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

// The kernel for a node on c.arch; null: the interpreter's.
KernelPtr MakeKernel(const Node& node, const CompileContext& c);

// The same for the first of `nodes`; those behind it that its step serves too are added.
KernelPtr MakeKernel(const CompileContext& c, std::vector<ir::NodeId>& nodes);

// Why neither a kernel nor the interpreter runs it.
std::unexpected<ir::Error> NothingRuns(const Graph& graph, const Node& node);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_COMPILE_H_
