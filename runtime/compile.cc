// Which kernel each node gets, and the steps of last resort.
#include "octavo/runtime/compile.h"

#include <algorithm>

#include "octavo/ir/vendor/lower.h"
#include "octavo/runtime/by_heads.h"
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/step_blocked.h"
#include "octavo/runtime/step_linear.h"
#include "octavo/runtime/step_norm.h"
#include "octavo/runtime/window_rows.h"

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
    OCTAVO_TRY(std::vector<ir::RtValue> made, ir::EvalNode(graph_, node_, call.in, call.interrupted));
    call.out.resize(std::max(call.out.size(), made.size()));
    std::ranges::move(made, call.out.begin());  // a step around this one may have outputs behind them
    return {};
  }

 private:
  const Graph& graph_;
  const Node& node_;
};

// What the kernel of a product does beside it (by_heads.h).
void StoreByHeads(const CompileContext& c, Made& made) {
  for (ValueId& v : made.outputs) {
    if (!v.valid()) continue;
    const Node& n = c.graph.node(c.graph.value(v).producer);
    const auto slot = std::ranges::find(n.outputs, v) - n.outputs.begin();
    const std::optional<ByHeads> by_heads = FindByHeads(c.graph, n, static_cast<size_t>(slot));
    if (!by_heads) continue;
    made.nodes.insert(made.nodes.end(), {by_heads->reshape, by_heads->transpose});
    v = c.graph.node(by_heads->transpose).output();
  }
}

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
  if (node.op == Op::kQuantizedLinear || node.op == Op::kQuantizedQkv) made = MakeLinearGroup(id, c, chains);
  if (node.op == Op::kRMSNormalization) made = MakeNormGroup(id, c);
  if (node.op == Op::kConcat) made = MakeUnfold(id, c);
  if (made.kernel == nullptr) made = MakeTurned(id, c, chains);
  if (made.kernel == nullptr)
    made = {.kernel = MakeKernel(node, c), .nodes = {id}, .inputs = node.inputs, .outputs = node.outputs};
  if (made.kernel != nullptr) StoreByHeads(c, made);
  if (node.op == Op::kQuantizedLinear || node.op == Op::kQuantizedQkv)
    TakeRowsToCode(id, c, made), TakeWindows(c, made);
  return made;
}

std::unexpected<ir::Error> NothingRuns(const Graph& graph, const Node& node) {
  if (const std::string why = ir::vendor::WhyOpaque(graph, node); !why.empty()) return ir::Fail("{}", why);
  return ir::Fail(
      "node '{}': octavo has no implementation of {}{}{}; nothing runs it", DisplayName(node), node.domain,
      node.domain.empty() ? "" : "::", node.op == Op::kOpaque ? node.op_type : std::string(ir::InfoOf(node.op).name));
}

}  // namespace octavo::runtime
