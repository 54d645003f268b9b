// Which kernel each node gets, and the steps of last resort.
#include "octavo/runtime/compile.h"

#include "octavo/ir/vendor/lower.h"
#include "octavo/runtime/step_blocked.h"
#include "octavo/runtime/step_linear.h"

namespace octavo::runtime {

namespace {

class InterpretedKernel : public Kernel {
 public:
  InterpretedKernel(const Graph& graph, ir::NodeId node) : graph_(graph), node_(graph.node(node)) {
    takes_rooms = node_.op == Op::kShape;  // reads no element
  }
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

Made MakeKernel(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains) {
  const Node& node = c.graph.node(id);
  Made made;
  if (node.op == Op::kLinearBlocked) made = MakeBlockedGroup(id, c, chains);
  if (node.op == Op::kQuantizedLinear) made = MakeLinearGroup(id, c, chains);
  if (made.kernel != nullptr) return made;
  return {.kernel = MakeKernel(node, c), .nodes = {id}, .inputs = node.inputs, .outputs = node.outputs};
}

std::unexpected<ir::Error> NothingRuns(const Graph& graph, const Node& node) {
  if (const std::string why = ir::vendor::WhyOpaque(graph, node); !why.empty()) return ir::Fail("{}", why);
  return ir::Fail(
      "node '{}': octavo has no implementation of {}{}{}; nothing runs it", DisplayName(node), node.domain,
      node.domain.empty() ? "" : "::", node.op == Op::kOpaque ? node.op_type : std::string(ir::InfoOf(node.op).name));
}

}  // namespace octavo::runtime
