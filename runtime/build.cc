#include "octavo/runtime/build.h"

#include <algorithm>
#include <map>
#include <set>

#include "octavo/runtime/chain.h"
#include "octavo/runtime/codes_first.h"
#include "octavo/runtime/compile.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/tail.h"

namespace octavo::runtime {

namespace {

Step StepOf(const CompileContext& c, ir::NodeId node, Made made) {
  Step step;
  step.node = node;
  step.kernel = std::move(made.kernel);
  for (const ir::NodeId id : made.nodes) {
    const auto& origin = c.graph.node(id).origin;
    step.origin.insert(step.origin.end(), origin.begin(), origin.end());
  }
  for (const ValueId v : made.inputs) step.inputs.push_back(v.index);
  for (const ValueId v : made.outputs) step.outputs.push_back(v.index);
  Expect(*step.kernel, c, made.inputs, made.outputs);
  return step;
}

bool IsKnown(const CompileContext& c, const Node& n) {
  return !n.outputs.empty() &&
         std::ranges::all_of(n.outputs, [&](ValueId v) { return !v.valid() || c.Constant(v) != nullptr; });
}

// In the place of the chain's last node.
Made MadeOfChain(const CompileContext& c, const Chain& chain) {
  Made made{.kernel = MakeChain(chain, c), .nodes = chain.nodes, .inputs = chain.inputs};
  made.outputs = {c.graph.node(chain.nodes.back()).output()};
  return made;
}

}  // namespace

Result<std::vector<Step>> BuildSteps(const CompileContext& c) {
  const Graph& g = c.graph;
  const bool kernels = c.options->kernels;
  const std::vector<Chain> chains = kernels ? FindChains(c) : std::vector<Chain>();
  ChainsByNode chain_of;
  for (const Chain& chain : chains) {
    for (const ir::NodeId id : chain.nodes) chain_of[id] = &chain;
  }
  std::vector<Step> steps;
  std::set<ir::NodeId> served;  // by the step of another node
  for (const ir::NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    if (served.contains(id)) continue;
    if (const auto it = chain_of.find(id); it != chain_of.end()) {
      if (id == it->second->nodes.back()) steps.push_back(StepOf(c, id, MadeOfChain(c, *it->second)));
      continue;
    }
    if (IsKnown(c, n)) continue;
    Made made;
    if (kernels) made = MakeKernel(id, c, chain_of);
    if (made.kernel == nullptr) {
      if (!ir::CanEval(n.op)) return NothingRuns(g, n);
      made = {.kernel = MakeInterpreted(g, id), .nodes = {id}, .inputs = n.inputs, .outputs = n.outputs};
    }
    for (const ir::NodeId other : made.nodes) {  // a step that came before joins this one
      if (g.Before(other, id)) std::erase_if(steps, [other](const Step& step) { return step.node == other; });
    }
    served.insert(made.nodes.begin(), made.nodes.end());
    Step step = StepOf(c, id, std::move(made));
    if (kernels && n.op == Op::kQuantizedSdpa) TakeCodesOfOperands(c, steps, step);
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace octavo::runtime
