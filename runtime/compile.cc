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
    case Op::kLinearInt8:
    case Op::kQkvInt8:
      return MakeLinear(node, c);
    case Op::kLinearBlocked:
      return MakeBlocked(node, c);
    case Op::kSdpa:
    case Op::kSdpaInt8:
      return MakeAttention(node, c);
    case Op::kNormQuant:
    case Op::kSkipLayerNorm:
    case Op::kLayerNormalization:
    case Op::kRMSNormalization:
    case Op::kSoftmax:
      return MakeNorm(node, c);
    case Op::kMatMul:
      return MakeMatMul(node, c);
    case Op::kConv:
      return MakeConv(node, c);
    case Op::kConvInteger:
      return MakeConvInteger(node, c);
    case Op::kQuantizeLinear:
    case Op::kDequantizeLinear:
      return MakeQuantize(node, c);
    case Op::kDynamicQuantizeLinear:
      return MakeDynamicQuantize(node, c);
    case Op::kQuantizeTokens:
      return MakeQuantizeTokens(node, c);
    case Op::kLookup:
      return MakeLookup(node, c);
    case Op::kIf:
    case Op::kLoop:
    case Op::kScan:
      return MakeControl(node, c);
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kConcat:
    case Op::kSplit:
      return MakeMovement(node, c);
    case Op::kTensorScatter:
      return MakeCacheWrite(node, c);
    case Op::kRotaryEmbedding:
      return MakeRotary(node, c);
    case Op::kCacheAppend:
      return MakeCacheAppend(node, c);
    default:
      return MakeElementwise(node, c);
  }
}

}  // namespace octavo::runtime
