// Inside of the runtime: the steps of a graph.
#ifndef OCTAVO_RUNTIME_BUILD_H_
#define OCTAVO_RUNTIME_BUILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

inline constexpr uint32_t kNone = ValueId::kNone;

struct Step {
  ir::NodeId node;  // of a chain the last one
  std::vector<std::string> origin;
  KernelPtr kernel;
  std::vector<uint32_t> inputs;      // value indices; kNone: absent
  std::vector<uint32_t> outputs;     // value indices; kNone: not wanted
  std::vector<uint32_t> frees = {};  // values nobody needs after this step
  std::vector<bool> leaves = {};     // by output: one of the graph
};

// In the order in which they run.
Result<std::vector<Step>> BuildSteps(const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_BUILD_H_
