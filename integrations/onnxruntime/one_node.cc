#include "octavo/integrations/onnxruntime/one_node.h"

#include "octavo/ir/infer.h"
#include "octavo/ir/verify.h"

namespace octavo::integrations::onnxruntime {

ir::Result<OneNode> MakeOneNode(ir::Op op, ir::Attrs attrs, std::span<const Operand> inputs,
                                const std::vector<bool>& outputs, std::string name) {
  OneNode one;
  std::vector<ir::ValueId> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& in = inputs[i];
    const std::string slot = "i" + std::to_string(i);
    if (in.constant.defined()) {
      values.push_back(one.graph.AddConstant(in.constant, slot));
    } else if (in.type.dtype != ir::DType::kUndefined) {
      values.push_back(one.graph.AddInput(slot, in.type));
    } else {
      values.push_back({});
    }
  }
  while (!values.empty() && !values.back().valid()) values.pop_back();
  one.node = one.graph.AddNode(op, values, outputs.size(), std::move(attrs), std::move(name));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]) {
      one.graph.AddOutput("o" + std::to_string(i), one.graph.node(one.node).outputs[i]);
    } else {
      one.graph.DropOutput(one.node, i);
    }
  }
  OCTAVO_TRY_STATUS(ir::VerifyStatus(one.graph));
  OCTAVO_TRY_STATUS(ir::Inference::Run(one.graph).transform([](const auto&) {}));
  return one;
}

}  // namespace octavo::integrations::onnxruntime
