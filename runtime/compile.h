#ifndef OCTAVO_RUNTIME_COMPILE_H_
#define OCTAVO_RUNTIME_COMPILE_H_

#include "octavo/runtime/step.h"

namespace octavo::runtime {

// The kernel for a node on c.arch; null: the interpreter's.
KernelPtr MakeKernel(const Node& node, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_COMPILE_H_
