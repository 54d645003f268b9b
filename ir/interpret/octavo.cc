// octavo's own ops mean their body (ir/functions.h), run node by node.
#include "octavo/ir/functions.h"
#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

namespace {

// Inputs and outputs of a body are named by slot, "i7" and "o0".
size_t SlotOf(const std::string& name) {
  size_t slot = 0;
  for (size_t i = 1; i < name.size(); ++i) slot = slot * 10 + static_cast<size_t>(name[i] - '0');
  return slot;
}

Status ByItsBody(Call& call) {
  OCTAVO_TRY(const Graph body, BodyOf(call.graph, call.node));
  std::vector<RtValue> operands;
  for (ValueId v : body.inputs()) {
    // Absent optional inputs have no input in the body.
    const size_t slot = SlotOf(body.value(v).name);
    if (!call.Has(slot)) return Fail("input {} is absent", slot);
    operands.push_back(
        call.in[slot]);  // with its integers, if it has some: what stands in the body sees them as in place
  }
  OCTAVO_TRY(std::vector<RtValue> results, RunGraph(body, operands));
  for (size_t i = 0; i < results.size(); ++i) {
    call.Return(std::move(results[i].tensor), SlotOf(body.outputs()[i].name));
  }
  return {};
}

}  // namespace

void RegisterOctavo(Table& t) {
  for (size_t i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    if (HasBody(op)) t.Set(op, ByItsBody);
  }
}

}  // namespace octavo::ir::interpret
