// Which kernel each node gets, and the steps of last resort.
#include "octavo/runtime/compile.h"

namespace octavo::runtime {

namespace {

class InterpretedKernel : public Kernel {
 public:
  InterpretedKernel(const Graph& graph, ir::NodeId node) : graph_(graph), node_(graph.node(node)) {}
  std::string name() const override { return InterpreterOf(node_.op); }
  Status Execute(StepCall& call) const override {
    call.interpreted = true;
    OCTAVO_TRY(call.out, ir::EvalNode(graph_, node_, call.in, call.interrupted));
    return {};
  }

 private:
  const Graph& graph_;
  const Node& node_;
};

}  // namespace

KernelPtr MakeInterpreted(const Graph& graph, ir::NodeId node) {
  return std::make_unique<InterpretedKernel>(graph, node);
}

KernelPtr MakeKernel(const Node& node, const CompileContext& c) {
  switch (node.op) {
#define OCTAVO_STEP(Name, Make) \
  case Op::k##Name:             \
    return Make(node, c);
#include "octavo/runtime/steps.def"
#undef OCTAVO_STEP
    default:
      return MakeElementwise(node, c);
  }
}

}  // namespace octavo::runtime
