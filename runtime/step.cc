#include "octavo/runtime/step.h"

#include "octavo/runtime/model.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {

Status Kernel::Run(StepCall& call) const {
  if (call.rooms && !takes_rooms) {
    for (RtValue& v : call.in) v.tensor = Dense(v.tensor);
  }
  const Status fits = Fits(call);
  if (!fits && otherwise == nullptr) return fits;
  OCTAVO_TRY_STATUS(fits ? Execute(call) : otherwise->Run(call));
  return call.apart.empty() ? Made(call) : Status{};
}

Status Kernel::Fits(const StepCall& call) const {
  if (call.apart.empty()) return needs.Check(call.in);
  for (const StepCall* one : call.apart) OCTAVO_TRY_STATUS(needs.Check(one->in));
  return {};
}

// What another step reads is compared there. Kernels make what they were made for, so in between only the interpreter is asked.
Status Kernel::Made(const StepCall& call) const {
  return call.interpreted || leaves_ ? needs.CheckMade(call.out) : Status{};
}

bool CompileContext::SumsInOrder() const {
  return arch == kernels::Arch::kScalar && options != nullptr && options->rows_alone;
}

void Expect(Kernel& kernel, const CompileContext& c, std::span<const ValueId> in, std::span<const ValueId> out) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].valid() && c.Constant(in[i]) == nullptr) kernel.needs.Of(i, c.graph.value(in[i]).type);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].valid()) continue;
    kernel.needs.Makes(i, c.graph.value(out[i]).type);
    kernel.leaves_ |= c.graph.IsGraphOutput(out[i]);
  }
}

}  // namespace octavo::runtime
