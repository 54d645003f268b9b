#include "octavo/api/start.h"

#include <algorithm>
#include <set>

#include "octavo/runtime/packed_once.h"

namespace octavo::api {

std::shared_ptr<runtime::PackedWeightsSet> Start::NoneYet() { return std::make_shared<runtime::PackedWeightsSet>(); }

passes::PassRun ToldBy(const passes::PassRun& run) {
  passes::PassRun told;
  TellAgain(run, told);
  return told;
}

void TellAgain(const passes::PassRun& told, passes::PassRun& run) {
  run.own_params = told.own_params, run.columns = told.columns, run.weight_limit = told.weight_limit;
  run.decisions = told.decisions, run.candidates = told.candidates;
  run.log = told.log, run.notes = told.notes;
}

void KeepPackedOf(const ir::Graph& graph, runtime::PackedWeightsSet& packed) {
  std::set<const std::byte*> own;
  for (const ir::NodeId id : graph.NodesInOrder()) {
    const ir::Node& n = graph.node(id);
    if (n.op == ir::Op::kConstant) own.insert(graph.ConstantOf(n.output())->data());
  }
  std::erase_if(packed.entries, [&own](const auto& entry) {
    return !std::ranges::all_of(entry.second.from, [&own](const ir::Tensor& t) { return own.contains(t.data()); });
  });
}

}  // namespace octavo::api
