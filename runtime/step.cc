#include "octavo/runtime/step.h"

namespace octavo::runtime {

Status Kernel::Run(StepCall& call) const {
  OCTAVO_TRY_STATUS(needs.Check(call.in, "input"));
  OCTAVO_TRY_STATUS(Execute(call));
  return makes_.Check(call.out, "output");
}

void Expect(Kernel& kernel, const CompileContext& c, std::span<const ValueId> in, std::span<const ValueId> out) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].valid() && c.Constant(in[i]) == nullptr) kernel.needs.Of(i, c.graph.value(in[i]).type);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].valid()) kernel.makes_.Of(i, c.graph.value(out[i]).type);
  }
}

}  // namespace octavo::runtime
